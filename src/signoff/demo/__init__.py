"""The demo: a small desk with a page, behind `signoff demo`. Wired like any application; nothing here is special."""
