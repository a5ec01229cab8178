"""Which files a translation unit could read: a pure function of trees, not of a compiler run."""
