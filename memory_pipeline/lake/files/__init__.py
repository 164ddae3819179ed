"""Files of a lake: in a folder, or in an S3 bucket."""
