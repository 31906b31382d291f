/* The function of bcryptprimitives.dll that Rust's standard library calls, for Wine before 9, which has no such DLL. */
#include <windows.h>

BOOLEAN WINAPI SystemFunction036(PVOID to, ULONG len); /* RtlGenRandom of advapi32 */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T len) {
  while (len > 0) {
    ULONG part = len < 1u << 20 ? (ULONG)len : 1u << 20;
    if (!SystemFunction036(to, part)) return FALSE;
    to += part;
    len -= part;
  }
  return TRUE;
}
