/* Tells ThreadSanitizer what the standard library orders.
 *
 * The standard library comes compiled, without ThreadSanitizer. What of it is generic or inline, such as taking a lock that is
 * free, is compiled with the library and seen. The functions below are not: the linker (--wrap) lets each call of one pass here,
 * where the order that it makes is declared. scripts/tsan.sh finds their names, which change with the compiler, and defines
 * REAL_* and WRAP_* for each.
 *
 * With FORGET_LOCKS no lock orders anything, although each still excludes: what a lock guards must then be reported. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

/* Memory orders, as ThreadSanitizer numbers them. */
enum { RELAXED = 0, RELEASE = 3 };

static void acquire_lock(void *lock) {
#ifndef FORGET_LOCKS
  __tsan_acquire(lock);
#else
  (void)lock;
#endif
}

/* A lock that is taken: waits for it. Unlocking is inline, a release that is seen. */
void REAL_LOCK(void *lock);
void WRAP_LOCK(void *lock) {
  REAL_LOCK(lock);
  acquire_lock(lock);
}

/* A condition: unlocks, waits, locks. */
void REAL_WAIT(void *condition, void *lock);
void WRAP_WAIT(void *condition, void *lock) {
  __tsan_release(lock);
  REAL_WAIT(condition, lock);
  acquire_lock(lock);
}

bool REAL_WAIT_TIMEOUT(void *condition, void *lock, uint64_t seconds, uint32_t nanoseconds);
bool WRAP_WAIT_TIMEOUT(void *condition, void *lock, uint64_t seconds, uint32_t nanoseconds) {
  __tsan_release(lock);
  bool in_time = REAL_WAIT_TIMEOUT(condition, lock, seconds, nanoseconds);
  acquire_lock(lock);
  return in_time;
}

/* What is made once (Once, OnceLock, LazyLock). The release has to come after `make` and before the state says that it is made,
 * so `make`, a `&mut dyn FnMut(&OnceState)`, is replaced by one that does both. Its table is
 * [drop, size, align, call_once, call_mut]. That it is made already is found inline, by an acquire that is seen. */
enum { CALL_MUT = 4, METHODS };
typedef void call_mut(void *closure, void *once_state);

struct make {
  void *once, *closure;
  void *const *methods;
};

static void make_and_release(void *data, void *once_state) {
  const struct make *make = data;
  ((call_mut *)make->methods[CALL_MUT])(make->closure, once_state);
  __tsan_release(make->once);
}

void REAL_ONCE(void *once, bool ignore_poison, void *closure, void *const *methods);
void WRAP_ONCE(void *once, bool ignore_poison, void *closure, void *const *methods) {
  struct make make = {once, closure, methods};
  void *const replaced[METHODS] = {
      NULL, (void *)sizeof make, (void *)_Alignof(struct make), NULL, (void *)make_and_release,
  };
  REAL_ONCE(once, ignore_poison, &make, replaced);
  __tsan_acquire(once);
}

/* The count of an Arc: each drop releases, and the last one acquires all of them, by a fence, which ThreadSanitizer does not know.
 * Nothing else of the library subtracts with a release alone. */
uint64_t __real___tsan_atomic64_fetch_sub(volatile uint64_t *address, uint64_t value, int order);
uint64_t __wrap___tsan_atomic64_fetch_sub(volatile uint64_t *address, uint64_t value, int order) {
  uint64_t before = __real___tsan_atomic64_fetch_sub(address, value, order);
  if (order == RELEASE && before == value) __tsan_acquire((void *)address);
  return before;
}

/* Taking a lock that is free: an exchange of 32 bits in the standard library, of 8 in parking_lot. */
#ifdef FORGET_LOCKS
#define EXCHANGE(bits)                                                                                                      \
  uint##bits##_t __real___tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t *, uint##bits##_t, uint##bits##_t, \
                                                                   int, int);                                               \
  uint##bits##_t __wrap___tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t *address, uint##bits##_t from,   \
                                                                   uint##bits##_t to, int order, int failed) {              \
    (void)order, (void)failed;                                                                                              \
    return __real___tsan_atomic##bits##_compare_exchange_val(address, from, to, RELAXED, RELAXED);                          \
  }
EXCHANGE(8)
EXCHANGE(32)
#endif
