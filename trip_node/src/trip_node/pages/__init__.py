"""HTML pages that hold all that they show, and load nothing."""
