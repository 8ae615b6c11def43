"""Where examples come from and how clients come by them."""
