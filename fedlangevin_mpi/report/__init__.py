"""What a run looks like: figures, and pages that hold them."""
