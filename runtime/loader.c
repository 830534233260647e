/* loader.c: maps a mask's object file into the process, without LLVM. Input: a relocatable ELF64 object for this
 * machine's architecture as emit.c makes it (System V gABI; psABI of x86-64 or AArch64). Output: its function
 * FLYI_TILE_SYMBOL, or the two of a score modifier.
 *
 * Our own objects are small and of few shapes: code and constants, references relative to the program counter, and
 * calls of memcpy and the like. Everything else is an error, and no number of the file is used before it is checked.
 * Pages are writable while they are filled, and then executable or readable, never both writable and executable. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

enum { MAX_SECTIONS = 256, MAX_ALIGN = 4096, MAX_IMAGE = 64 << 20, STUB = 16 };

#if defined __aarch64__
enum { MACHINE = EM_AARCH64 };
static const uint32_t stub[2] = {0x58000050, 0xd61f0200}; /* ldr x16, 8 bytes on; br x16 */
#else
enum { MACHINE = EM_X86_64 };
static const uint8_t stub[8] = {0xff, 0x25, 2}; /* jmp *2(%rip) */
#endif

/* What generated code may call: LLVM makes these of loops that copy or clear a local array. */
static const struct {
  const char *name;
  void (*function)(void);
} externals[] = {
    {"memcpy", (void (*)(void))memcpy},
    {"memmove", (void (*)(void))memmove},
    {"memset", (void (*)(void))memset},
};
enum { EXTERNALS = sizeof externals / sizeof *externals };

typedef struct object {
  const uint8_t *data;
  size_t size;
  int section_count;
  Elf64_Shdr sections[MAX_SECTIONS];
  size_t place[MAX_SECTIONS]; /* offset in the mapping; SIZE_MAX: not loaded */
  int symbols;                /* the section of symbols; 0: none yet */
  size_t stubs;               /* offset of the stubs, one for each of externals */
  size_t code_size, total;    /* whole pages: code, then constants */
  uint8_t *base;
} object;

static fly_status bad(fly_error *error, const char *what) {
  return flyi_fail(error, FLY_ERROR_IMAGE, "the mask's code is damaged: %s", what);
}

/* ---- the file's parts -------------------------------------------------------------------------------------------- */

static bool inside(const object *o, uint64_t offset, uint64_t size) {
  return offset <= o->size && size <= o->size - offset;
}

static fly_status read_header(object *o, fly_error *error) {
  Elf64_Ehdr h;
  if (o->size < sizeof h) return bad(error, "no ELF header");
  memcpy(&h, o->data, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
      h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_type != ET_REL || h.e_machine != MACHINE || h.e_phnum != 0)
    return bad(error, "not a relocatable object for this machine");
  if (h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shnum == 0 || h.e_shnum > MAX_SECTIONS ||
      !inside(o, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)))
    return bad(error, "section headers");
  o->section_count = h.e_shnum;
  memcpy(o->sections, o->data + h.e_shoff, h.e_shnum * sizeof(Elf64_Shdr));
  for (int i = 1; i < o->section_count; i++) {
    const Elf64_Shdr *s = &o->sections[i];
    if (s->sh_type != SHT_NOBITS && !inside(o, s->sh_offset, s->sh_size)) return bad(error, "a section's place");
    if (s->sh_type != SHT_SYMTAB) continue;
    if (o->symbols || s->sh_entsize != sizeof(Elf64_Sym) || s->sh_size % sizeof(Elf64_Sym))
      return bad(error, "symbols");
    o->symbols = i;
  }
  if (!o->symbols) return bad(error, "no symbols");
  uint32_t link = o->sections[o->symbols].sh_link;
  if (link == 0 || link >= (uint32_t)o->section_count || o->sections[link].sh_type != SHT_STRTAB)
    return bad(error, "symbol names");
  const Elf64_Shdr *names = &o->sections[link];
  if (names->sh_size == 0 || o->data[names->sh_offset + names->sh_size - 1] != 0) return bad(error, "symbol names");
  return FLY_OK;
}

static size_t symbol_count(const object *o) { return o->sections[o->symbols].sh_size / sizeof(Elf64_Sym); }

static bool read_symbol(const object *o, size_t index, Elf64_Sym *symbol, const char **name) {
  const Elf64_Shdr *table = &o->sections[o->symbols], *names = &o->sections[table->sh_link];
  if (index >= symbol_count(o)) return false;
  memcpy(symbol, o->data + table->sh_offset + index * sizeof *symbol, sizeof *symbol);
  if (symbol->st_name >= names->sh_size) return false;
  *name = (const char *)o->data + names->sh_offset + symbol->st_name;
  return true;
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

/* Unwind tables are left out: no exception passes through a mask. */
static bool is_loaded(const Elf64_Shdr *s) {
  return s->sh_flags & SHF_ALLOC && s->sh_size && s->sh_type == SHT_PROGBITS;
}

static fly_status place_sections(object *o, bool code, size_t *at, fly_error *error) {
  const uint64_t known = SHF_ALLOC | SHF_EXECINSTR | SHF_MERGE | SHF_STRINGS | SHF_GROUP;
  for (int i = 1; i < o->section_count; i++) {
    const Elf64_Shdr *s = &o->sections[i];
    if (!(s->sh_flags & SHF_ALLOC) || s->sh_size == 0 || s->sh_type == SHT_X86_64_UNWIND) continue;
    if (!is_loaded(s) || s->sh_flags & ~known) return bad(error, "a section that is neither code nor constants");
    if (!(s->sh_flags & SHF_EXECINSTR) == code) continue;
    uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
    if (align > MAX_ALIGN || align & (align - 1)) return bad(error, "alignment");
    *at = (*at + align - 1) & ~(align - 1);
    if (s->sh_size > MAX_IMAGE || *at > MAX_IMAGE - s->sh_size) return bad(error, "size");
    o->place[i] = *at;
    *at += s->sh_size;
  }
  return FLY_OK;
}

static fly_status lay_out(object *o, fly_error *error) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), at = 0;
  for (int i = 0; i < MAX_SECTIONS; i++) o->place[i] = SIZE_MAX;
  fly_status status = place_sections(o, true, &at, error);
  if (status) return status;
  o->stubs = (at + STUB - 1) / STUB * STUB;
  o->code_size = at = (o->stubs + EXTERNALS * STUB + page - 1) / page * page;
  if ((status = place_sections(o, false, &at, error))) return status;
  o->total = (at + page - 1) / page * page;
  return FLY_OK;
}

/* A jump, and behind it the address that it goes to. */
static void write_stub(uint8_t *at, int external) {
  uint64_t address = (uintptr_t)externals[external].function;
  memcpy(at, stub, sizeof stub);
  memcpy(at + sizeof stub, &address, sizeof address);
}

static fly_status map_sections(object *o, fly_error *error) {
  void *base = mmap(NULL, o->total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return flyi_no_memory(error);
  o->base = base;
  for (int i = 1; i < o->section_count; i++)
    if (o->place[i] != SIZE_MAX)
      memcpy(o->base + o->place[i], o->data + o->sections[i].sh_offset, o->sections[i].sh_size);
  for (int i = 0; i < EXTERNALS; i++) write_stub(o->base + o->stubs + i * STUB, i);
  return FLY_OK;
}

/* ---- relocation -------------------------------------------------------------------------------------------------- */

/* Where a symbol lies in the mapping. */
static fly_status resolve(const object *o, uint32_t index, uint64_t *offset, fly_error *error) {
  Elf64_Sym symbol;
  const char *name;
  if (index == 0 || !read_symbol(o, index, &symbol, &name)) return bad(error, "a symbol's index");
  if (symbol.st_shndx == SHN_UNDEF) {
    for (int i = 0; i < EXTERNALS; i++) {
      *offset = o->stubs + i * STUB;
      if (strcmp(externals[i].name, name) == 0) return FLY_OK;
    }
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the mask's code needs %.100s, which is not there", name);
  }
  if (symbol.st_shndx >= o->section_count || o->place[symbol.st_shndx] == SIZE_MAX ||
      symbol.st_value > o->sections[symbol.st_shndx].sh_size)
    return bad(error, "a symbol's place");
  *offset = o->place[symbol.st_shndx] + symbol.st_value;
  return FLY_OK;
}

static fly_status relocate(object *o, const Elf64_Shdr *table, fly_error *error) {
  size_t target = table->sh_info, count = table->sh_size / sizeof(Elf64_Rela);
  if (table->sh_entsize != sizeof(Elf64_Rela) || table->sh_size % sizeof(Elf64_Rela) ||
      table->sh_link != (uint32_t)o->symbols)
    return bad(error, "relocations");
  for (size_t i = 0; i < count; i++) {
    Elf64_Rela r;
    uint64_t symbol;
    memcpy(&r, o->data + table->sh_offset + i * sizeof r, sizeof r);
    if (o->sections[target].sh_size < 4 || r.r_offset > o->sections[target].sh_size - 4)
      return bad(error, "a relocation's place");
    if (r.r_addend < -MAX_IMAGE || r.r_addend > MAX_IMAGE) return bad(error, "a relocation's addend");
    fly_status status = resolve(o, (uint32_t)ELF64_R_SYM(r.r_info), &symbol, error);
    if (status) return status;
    size_t place = o->place[target] + r.r_offset;
    uint64_t base = (uintptr_t)o->base, value = base + symbol + (uint64_t)r.r_addend;
    status = flyi_relocate(MACHINE, ELF64_R_TYPE(r.r_info), o->base + place, value, base + place, error);
    if (status) return status;
  }
  return FLY_OK;
}

static fly_status relocate_all(object *o, fly_error *error) {
  for (int i = 1; i < o->section_count; i++) {
    const Elf64_Shdr *s = &o->sections[i];
    if (s->sh_type == SHT_REL) return bad(error, "relocations without addends");
    if (s->sh_type != SHT_RELA) continue;
    if (s->sh_info == 0 || s->sh_info >= (uint32_t)o->section_count) return bad(error, "relocations");
    if (o->place[s->sh_info] == SIZE_MAX) continue; /* of the unwind tables */
    fly_status status = relocate(o, s, error);
    if (status) return status;
  }
  return FLY_OK;
}

const char *const flyi_entry_names[] = {FLYI_TILE_SYMBOL, FLYI_SCORE_SYMBOL, FLYI_SLOPE_SYMBOL};

void flyi_code_enter(flyi_code *code, int entry, void *address) {
  /* ISO C has no conversion from an object's to a function's pointer. */
  if (entry == FLYI_ENTRY_TILE)
    memcpy(&code->tile, &address, sizeof address);
  else if (entry == FLYI_ENTRY_SCORE)
    memcpy(&code->score, &address, sizeof address);
  else
    memcpy(&code->slope, &address, sizeof address);
}

static int entry_of(const char *name) {
  int entry = 0;
  while (entry < FLYI_ENTRIES && strcmp(flyi_entry_names[entry], name) != 0) entry++;
  return entry;
}

/* Where the entries are in the mapping. */
static fly_status find_entries(const object *o, bool found[FLYI_ENTRIES], uint64_t offsets[FLYI_ENTRIES],
                               fly_error *error) {
  for (size_t i = 1; i < symbol_count(o); i++) {
    Elf64_Sym symbol;
    const char *name;
    if (!read_symbol(o, i, &symbol, &name)) return bad(error, "a symbol");
    int entry = entry_of(name);
    if (ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL || entry == FLYI_ENTRIES || found[entry]) continue;
    uint64_t *offset = &offsets[entry];
    fly_status status = symbol.st_shndx == SHN_UNDEF ? bad(error, "no entry") : resolve(o, (uint32_t)i, offset, error);
    if (status) return status;
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || *offset >= o->stubs ||
        symbol.st_size > o->stubs - *offset)
      return bad(error, "the entry is no function");
    found[entry] = true;
  }
  bool score = found[FLYI_ENTRY_SCORE] && found[FLYI_ENTRY_SLOPE];
  return found[FLYI_ENTRY_TILE] || score ? FLY_OK : bad(error, "no entry");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void unload(flyi_code *code) {
  munmap(code->handle, code->size);
  *code = (flyi_code){0};
}

fly_status flyi_code_load(flyi_section code, flyi_code *out, fly_error *error) {
  fly_status status;
  uint64_t entries[FLYI_ENTRIES] = {0};
  bool found[FLYI_ENTRIES] = {false};
  *out = (flyi_code){0};
  object *o = flyi_alloc(1, sizeof *o);
  if (!o) return flyi_no_memory(error);
  o->data = code.data, o->size = code.size;
  if ((status = read_header(o, error)) || (status = lay_out(o, error)) ||
      (status = find_entries(o, found, entries, error)) || (status = map_sections(o, error)) ||
      (status = relocate_all(o, error)))
    goto done;
  __builtin___clear_cache((char *)o->base, (char *)o->base + o->code_size);
  if (mprotect(o->base, o->code_size, PROT_READ | PROT_EXEC) ||
      (o->total > o->code_size && mprotect(o->base + o->code_size, o->total - o->code_size, PROT_READ))) {
    status = flyi_fail(error, FLY_ERROR_UNSUPPORTED, "this system does not let memory become executable");
    goto done;
  }
  *out = (flyi_code){.handle = o->base, .size = o->total, .unload = unload};
  for (int i = 0; i < FLYI_ENTRIES; i++)
    if (found[i]) flyi_code_enter(out, i, o->base + entries[i]);
done:
  if (status && o->base) munmap(o->base, o->total);
  free(o);
  return status;
}
