"""Pictures to try the platform with: drawn nights with known boxes, and photographs from a folder."""
