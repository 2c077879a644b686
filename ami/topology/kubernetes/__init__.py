"""The topology as Kubernetes objects."""
