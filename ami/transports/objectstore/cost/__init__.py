"""What a broker in a bucket costs a month, from requests that the real code makes and that are counted."""
