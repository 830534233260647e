// 0:0: the source defines no function bool mask(int b, int h, int q, int kv), or a static one
static _Bool mask(int b, int h, int q, int kv) { return q > kv; }
