"""Records to Arrow rows and back."""
