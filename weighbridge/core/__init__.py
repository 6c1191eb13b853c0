"""What every other room stands on: errors, status, types, programs, files, progress."""
