"""device: what a tensor can live on. One backend class a kind of device behind one interface."""
