"""Decoding one text: the loop, acceptance, sampling, records of it, a session that moves in time."""
