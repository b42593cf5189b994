"""What tests build their worlds from; no test module imports from another."""
