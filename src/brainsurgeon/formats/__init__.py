"""What the formats of the agents share: entries, chains, marks of ours, edits and sizes."""
