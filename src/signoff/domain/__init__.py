"""Frozen values and the words they carry (DESIGN section 1). No I/O, no clock, no ids made here."""
