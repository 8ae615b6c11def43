"""What the site needs of Sphinx that no package brings."""
