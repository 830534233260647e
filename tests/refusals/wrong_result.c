// 2:1: mask is declared differently: it must be bool mask(int b, int h, int q, int kv)
int mask(int b, int h, int q, int kv) { return q > kv; }
