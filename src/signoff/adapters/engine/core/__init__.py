"""What an engine on the store's own tables is made of: runs, journal, waits, and how a run is settled."""
