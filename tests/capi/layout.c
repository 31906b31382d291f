/* Pins every offset, value and prototype of the header: a change here is a break of the ABI. Compiling it is the test.
 *
 * abi.h has the lines, which scripts/header.sh completes for a new field or function and never changes.
 */
#include <nanovllm.h>
#include <stddef.h>

_Static_assert(sizeof(void *) == 8, "these offsets are those of 64-bit platforms");

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " changed its size");
#define FIELD(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " moved");
#define VALUE(name, value) _Static_assert((name) == (value), #name " changed its value");

/* A prototype that differs from the header's is an error of the compiler. */
#include "abi.h"

int main(void) { return 0; }
