// How do ranks on several GPUs exchange rows? Decision: docs/decisions/0032-an-empty-word-is-the-flag.md.
//
// Each rank has a region of memory that all ranks can write. Every exchange has a number, which is the same on all ranks, and uses the
// slot of the number's parity. A rank pushes its data into the slots of all others and polls its own slot until no 32-bit word of what
// it waits for is EMPTY: the data are their own flags. The reader leaves EMPTY behind, for the exchange after the next one.
//
// Two slots suffice. A rank pushes into a slot again in exchange c + 2, which it begins when its exchange c + 1 has ended, for which it
// needed the data of every other rank: a share, or a sum that was made of it. That rank pushed these after its exchange c had ended, clears included: a kernel of this file
// pushes after `grid_dependency_wait`.
//
// Two rules keep the wait short and finite. A grid fits the device at once, so that no thread block which waits keeps one that pushes from
// starting, and a thread block pushes a row before it waits for it. It may push any number of rows further first: a wait for a row ends when
// all ranks have pushed that row, and what comes before a push in its thread block is waits for earlier rows only. So by induction
// over the rows each is pushed, and no wait lasts for ever. Where a row goes to its owner and comes back summed, the owner's push comes
// after its wait for the shares of that row, which all others push before they wait for it: the same induction. And whoever waits looks at `broken`, which any rank sets when it fails, and
// at the clock.
#pragma once

#include "numbers.cuh"

// A word that no result of a conversion has: two NaNs with all bits set, where a conversion gives 0x7fff.
constexpr uint32_t EMPTY = 0xffffffffu;
constexpr uint32_t NOT_EMPTY = 0x7fff7fffu;

// Ranks that exchange at most.
constexpr int MAX_RANKS = 8;

// A rank's place, and this exchange.
struct Exchange {
    uint8_t* regions;        // [ranks][2 slots][ranks][sender_bytes], at the same addresses on every GPU
    const uint32_t* before;  // exchanges before this pass
    uint32_t* broken;        // in host memory; not 0 when a rank has failed
    uint64_t patience;       // nanoseconds that a thread waits at most
    uint64_t sender_bytes;   // room for what one rank sends to another one in an exchange
    int index;               // of this exchange in the pass
    int rank;
    int ranks;
};

// The parity of this exchange. `before` is older than the pass: this may be asked before `grid_dependency_wait`.
__device__ inline uint32_t parity_of(const Exchange& e) {
    return (*e.before + uint32_t(e.index)) & 1;
}

// Where in the region of rank `to` lies what rank `from` sends.
__device__ inline uint8_t* slot_of(const Exchange& e, uint32_t parity, int to, int from) {
    return e.regions + ((size_t(to) * 2 + parity) * e.ranks + from) * e.sender_bytes;
}

// The same numbers, of which no pair is EMPTY.
__device__ inline Eight not_empty(Eight v) {
#pragma unroll
    for (int j = 0; j < 4; j++) v.pair[j] = v.pair[j] == EMPTY ? NOT_EMPTY : v.pair[j];
    return v;
}

// Sends `v`, of which no pair is EMPTY.
__device__ inline void push(uint8_t* to, const Eight& v) {
    asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.pair[0]), "r"(v.pair[1]), "r"(v.pair[2]),
                 "r"(v.pair[3])
                 : "memory");
}

// What a thread knows of its waits in this kernel.
struct Wait {
    uint64_t begun = 0;
    uint32_t polls = 0;
    bool is_lost = false;
};

// Whether a thread that waits gives up. Looked at every 1024 polls, of about a microsecond each.
__device__ inline bool gives_up(const Exchange& e, Wait& wait) {
    uint64_t now;
    uint32_t broken;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(broken) : "l"(e.broken) : "memory");
    if (wait.begun == 0) wait.begun = now;
    if (broken == 0 && now - wait.begun < e.patience) return false;
    if (broken == 0) asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(e.broken), "r"(1u) : "memory");
    return true;
}

// What lies in `from` now.
__device__ inline Eight look(const uint8_t* from) {
    Eight v;
    asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.pair[0]), "=r"(v.pair[1]), "=r"(v.pair[2]), "=r"(v.pair[3])
                 : "l"(from)
                 : "memory");
    return v;
}

// Waits for what was sent to `from`, where `v` was the first look at it, and leaves EMPTY behind. Where a rank is lost the result is not
// defined.
__device__ inline Eight take(uint8_t* from, Eight v, const Exchange& e, Wait& wait) {
    while (v.pair[0] == EMPTY || v.pair[1] == EMPTY || v.pair[2] == EMPTY || v.pair[3] == EMPTY) {
        if (wait.is_lost || (++wait.polls % 1024 == 0 && (wait.is_lost = gives_up(e, wait)))) return v;
        v = look(from);
    }
    *reinterpret_cast<Eight*>(from) = Eight{{EMPTY, EMPTY, EMPTY, EMPTY}};
    return v;
}
__device__ inline Eight take(uint8_t* from, const Exchange& e, Wait& wait) {
    return take(from, look(from), e, wait);
}
