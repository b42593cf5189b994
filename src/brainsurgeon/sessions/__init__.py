"""Find sessions below the roots, list and change rows, keep transcripts."""
