/* SPDX-License-Identifier: Apache-2.0
 *
 * Overwrites the first characters of names in ELF files, in place. The dynamic section says where
 * the names are.
 */
#include "bench/compare/build/soname.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/tool.h"

enum { DIGITS = 2 };

/* A file mapped into memory. Writing to the memory writes to the file. */
struct image {
    char *bytes;
    size_t size;
};

static bool map(const char *file, struct image *image)
{
    struct stat status;
    const int descriptor = open(file, O_RDWR | O_CLOEXEC);
    const bool known = descriptor >= 0 && !fstat(descriptor, &status);
    *image = (struct image){.size = known ? (size_t)status.st_size : 0};
    if (image->size > 0)
        image->bytes = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    const int error = errno;
    if (descriptor >= 0)
        close(descriptor);
    return (known && image->bytes != MAP_FAILED) ||
           complain("cannot read %s: %s", file, strerror(error));
}

static void unmap(const struct image *image)
{
    if (image->size > 0 && image->bytes != MAP_FAILED)
        munmap(image->bytes, image->size);
}

/* ------------------------------------------------------------------------------------ ELF files */

/* Returns the address of `bytes` bytes at `offset`, or NULL if the file does not have all of these
 * bytes. */
static void *part(const struct image *image, uint64_t offset, uint64_t bytes)
{
    return offset <= image->size && bytes <= image->size - offset ? image->bytes + offset : NULL;
}

/* Returns the program header of this type whose segment contains the address. If the address is 0,
 * returns the first header of this type. Returns NULL if there is no such header, or if the image
 * is no ELF file of this program's word size. */
static const ElfW(Phdr) * segment(const struct image *image, uint32_t type, uint64_t address)
{
    const ElfW(Ehdr) *const elf = part(image, 0, sizeof *elf);
    if (!elf || memcmp(elf->e_ident, ELFMAG, SELFMAG) ||
        elf->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
        return NULL;
    const ElfW(Phdr) *const headers =
        part(image, elf->e_phoff, (uint64_t)elf->e_phnum * sizeof *headers);
    for (int i = 0; headers && i < elf->e_phnum; i++)
        if (headers[i].p_type == type &&
            (address == 0 ||
             (address >= headers[i].p_vaddr && address - headers[i].p_vaddr < headers[i].p_filesz)))
            return &headers[i];
    return NULL;
}

/* Returns the dynamic section. Returns NULL if the file has no dynamic section, or if this section
 * has no DT_NULL, which marks its end. */
static const ElfW(Dyn) * dynamic_section(const struct image *image)
{
    const ElfW(Phdr) *const header = segment(image, PT_DYNAMIC, 0);
    const ElfW(Dyn) *const entries =
        header ? part(image, header->p_offset, header->p_filesz) : NULL;
    const size_t count = entries ? header->p_filesz / sizeof *entries : 0;
    for (size_t i = 0; i < count; i++)
        if (entries[i].d_tag == DT_NULL)
            return entries;
    return NULL;
}

/* Returns the value of the first entry with this tag, or 0 if there is no such entry. */
static uint64_t value_of(const ElfW(Dyn) * entry, ElfW(Sxword) tag)
{
    while (entry->d_tag != DT_NULL && entry->d_tag != tag)
        entry++;
    return entry->d_tag == tag ? entry->d_un.d_val : 0;
}

/* Returns the string at offset `place` of the string table. Returns NULL if the file does not have
 * the whole table, or if the table does not have the whole string. */
static char *string_at(const struct image *image, const ElfW(Dyn) * entries, uint64_t place)
{
    const uint64_t table = value_of(entries, DT_STRTAB), bytes = value_of(entries, DT_STRSZ);
    const ElfW(Phdr) *const header = segment(image, PT_LOAD, table);
    char *const strings =
        header ? part(image, table - header->p_vaddr + header->p_offset, bytes) : NULL;
    return strings && place < bytes && memchr(strings + place, '\0', bytes - place)
               ? strings + place
               : NULL;
}

/* Returns the first string whose entry in the dynamic section has this tag. If `wanted` is not
 * NULL, the string must also be equal to `wanted`. Returns NULL if there is no such string. */
static char *find_string(const struct image *image, ElfW(Sxword) tag, const char *wanted)
{
    const ElfW(Dyn) *const entries = dynamic_section(image);
    for (const ElfW(Dyn) *entry = entries; entry && entry->d_tag != DT_NULL; entry++) {
        char *const string =
            entry->d_tag == tag ? string_at(image, entries, entry->d_un.d_val) : NULL;
        if (string && (!wanted || !strcmp(string, wanted)))
            return string;
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------ the names */

/* Writes the number into the soname of the library, and into the module's request for this soname.
 * On an error, prints it and returns false. */
static bool number_both(const struct image *library, const struct image *module, int number,
                        const char *side)
{
    char digits[16];
    char *const name = find_string(library, DT_SONAME, NULL);
    if (!name || strlen(name) < DIGITS)
        return complain("%s cannot be loaded: it is no shared library with a soname", side);
    char *const needed = find_string(module, DT_NEEDED, name);
    if (!needed)
        return complain("the worker of %s was not linked with %s, the soname of its library", side,
                        name);
    snprintf(digits, sizeof digits, "%02d", number % 100);
    memcpy(name, digits, DIGITS);
    memcpy(needed, digits, DIGITS);
    return true;
}

bool soname_number(const char *library, const char *module, int number, const char *side)
{
    struct image images[2] = {{NULL, 0}, {NULL, 0}};
    const bool ok = map(library, &images[0]) && map(module, &images[1]) &&
                    number_both(&images[0], &images[1], number, side);
    unmap(&images[0]);
    unmap(&images[1]);
    return ok;
}
