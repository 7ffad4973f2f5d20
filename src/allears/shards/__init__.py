"""HDF5 shards: how they are made, and how they are read by position."""
