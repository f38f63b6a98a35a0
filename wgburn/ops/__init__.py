"""ops: the op table. One primitive op is one record; `wgburn.ops.table` lists them all."""
