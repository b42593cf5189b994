"""The hand that touches session files: finding, reading, judging quiet, replacing."""
