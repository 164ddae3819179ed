"""Files of a lake, in a folder or an S3 bucket."""
