// SPDX-License-Identifier: Apache-2.0
// By rewriting the library's own table of imports: no symbol is interposed and no code is patched, so other users of the same symbol are not
// affected. The tables are those of ELF with 64 bits and addends (System V ABI, chapter 5); elsewhere nothing is redirected.
#include "decoders/codecs/redirected_symbol.h"

#if defined(__linux__) && defined(__LP64__)
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#endif

namespace ndd {

#if defined(__linux__) && defined(__LP64__)
namespace {

struct Request {
  uintptr_t address;
  const char* symbol;
  void* replacement;
  bool done = false;
};

// A library accesses imported symbols through slots (GOT entries) that the loader has filled with addresses. Replacing the content of a
// slot affects only that library.
bool replace_slot(void** slot, void* replacement) {
  const auto page_size = uintptr_t(sysconf(_SC_PAGESIZE));
  const auto page = uintptr_t(slot) & ~(page_size - 1);
  // The slots may be read-only after relocation (RELRO). They then remain writable, as in every library without RELRO.
  if (mprotect(reinterpret_cast<void*>(page), page_size, PROT_READ | PROT_WRITE) != 0) return false;
  *slot = replacement;
  return true;
}

// Whether an address lies in a loaded segment of the library.
bool contains(const dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    const uintptr_t begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && address >= begin && address < begin + header.p_memsz) return true;
  }
  return false;
}

// The entries of the dynamic section that describe the slots: two tables of relocations, for data and for calls.
struct Imports {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * data = nullptr;
  const ElfW(Rela) * calls = nullptr;
  size_t data_bytes = 0;
  size_t call_bytes = 0;
};

Imports read_imports(const dl_phdr_info& info) {
  Imports imports;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const auto pointer = entry->d_un.d_ptr;  // glibc has added the load address
      switch (entry->d_tag) {
        case DT_SYMTAB: imports.symbols = reinterpret_cast<const ElfW(Sym)*>(pointer); break;
        case DT_STRTAB: imports.names = reinterpret_cast<const char*>(pointer); break;
        case DT_RELA: imports.data = reinterpret_cast<const ElfW(Rela)*>(pointer); break;
        case DT_RELASZ: imports.data_bytes = entry->d_un.d_val; break;
        case DT_JMPREL: imports.calls = reinterpret_cast<const ElfW(Rela)*>(pointer); break;
        case DT_PLTRELSZ: imports.call_bytes = entry->d_un.d_val; break;
        default: break;
      }
    }
  }
  return imports;
}

// Called for each loaded library until it returns a value other than 0.
int redirect_in(dl_phdr_info* info, size_t, void* argument) {
  auto& request = *static_cast<Request*>(argument);
  // Not the library in question: go on to the next one.
  if (!contains(*info, request.address)) return 0;
  const Imports imports = read_imports(*info);
  if (!imports.symbols || !imports.names) return 1;
  const auto redirect = [&](const ElfW(Rela)* relocation, size_t bytes) {
    for (size_t i = 0; relocation && i < bytes / sizeof *relocation; ++i) {
      // Relocations without a symbol have index 0.
      const auto index = ELF64_R_SYM(relocation[i].r_info);
      if (index && !std::strcmp(imports.names + imports.symbols[index].st_name, request.symbol)) {
        request.done |= replace_slot(reinterpret_cast<void**>(info->dlpi_addr + relocation[i].r_offset), request.replacement);
      }
    }
  };
  // Without PLT (as with -fno-plt) calls go through the slots of data.
  redirect(imports.data, imports.data_bytes);
  redirect(imports.calls, imports.call_bytes);
  return 1;
}

}  // namespace

bool redirect_symbol(const void* address_in_library, const char* symbol, void* replacement) {
  Request request{uintptr_t(address_in_library), symbol, replacement};
  dl_iterate_phdr(redirect_in, &request);
  return request.done;
}

#else

bool redirect_symbol(const void*, const char*, void*) { return false; }

#endif

}  // namespace ndd
