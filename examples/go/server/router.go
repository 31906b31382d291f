package main

import (
	"container/list"
	"encoding/binary"
	"hash/maphash"
)

// Limits of the table of prefixes. Longer prefixes than maxChunks chunks are not told apart.
const (
	chunkBytes  = 256     // of a prompt that is text
	chunkTokens = 64      // of a prompt that is tokens
	maxChunks   = 1 << 12 // per prompt
	maxPrefixes = 1 << 16 // in the table, which takes at most about 7 MB
)

// unavailable is the load of a replica that takes no prompt.
const unavailable = -1

// A router answers: which replica runs a prompt?
//
// Policy: the replica that was given the longest known prefix of the prompt last, because its prefix cache probably has it, unless its
// load exceeds that of the least loaded replica by more than maxSkew. Otherwise the least loaded replica; those with equal loads take
// turns.
//
// Invariant: the choice depends on the sequence of prompts and loads alone, and the table has at most maxPrefixes entries. The router
// knows no engine.
type router struct {
	maxSkew  int // in sequences that run or wait
	last     int // the replica that was chosen last
	prefixes *prefixTable
}

func newRouter(maxSkew int) *router {
	return &router{maxSkew: maxSkew, last: -1, prefixes: newPrefixTable(maxPrefixes)}
}

// A reason says why a replica was chosen.
type reason string

const (
	byPrefix reason = "prefix"
	byLoad   reason = "load"
)

// choose returns the index of a replica, or -1 if all loads are unavailable. keys are those of the prompt.
//
// The table is updated before the replica has computed the prompt, so that prompts that arrive together share its prefix too.
func (r *router) choose(keys []uint64, loads []int) (int, reason) {
	least := -1
	for i := range loads {
		at := (r.last + 1 + i) % len(loads)
		if loads[at] != unavailable && (least < 0 || loads[at] < loads[least]) {
			least = at
		}
	}
	if least < 0 {
		return -1, ""
	}
	chosen, why := least, byLoad
	if known, found := r.prefixes.longest(keys, loads); found && loads[known]-loads[least] <= r.maxSkew {
		chosen, why = known, byPrefix
	}
	r.last = chosen
	r.prefixes.record(keys, chosen)
	return chosen, why
}

// A prefixTable maps prefixes, by their keys, to the replica that was given them last. It forgets the prefixes that were used least
// recently.
type prefixTable struct {
	capacity int
	recent   *list.List // of prefixEntry, the most recently used first
	entries  map[uint64]*list.Element
}

type prefixEntry struct {
	key     uint64
	replica int
}

func newPrefixTable(capacity int) *prefixTable {
	return &prefixTable{capacity: capacity, recent: list.New(), entries: make(map[uint64]*list.Element)}
}

// longest returns the replica of the longest prefix that an available replica was given.
func (t *prefixTable) longest(keys []uint64, loads []int) (int, bool) {
	for i := len(keys) - 1; i >= 0; i-- {
		if found, known := t.entries[keys[i]]; known {
			if replica := found.Value.(prefixEntry).replica; loads[replica] != unavailable {
				return replica, true
			}
		}
	}
	return 0, false
}

// record assigns all prefixes of a prompt to a replica. The shortest are recorded last and therefore forgotten last: without them the
// longer ones are of little use.
func (t *prefixTable) record(keys []uint64, replica int) {
	for i := len(keys) - 1; i >= 0; i-- {
		entry := prefixEntry{keys[i], replica}
		if found, known := t.entries[entry.key]; known {
			found.Value = entry
			t.recent.MoveToFront(found)
			continue
		}
		t.entries[entry.key] = t.recent.PushFront(entry)
		if len(t.entries) > t.capacity {
			oldest := t.recent.Remove(t.recent.Back()).(prefixEntry)
			delete(t.entries, oldest.key)
		}
	}
}

// prefixSeed is drawn when the process starts, so that no client can construct prompts whose keys collide.
var prefixSeed = maphash.MakeSeed()

// prefixKeys returns a key per prefix of whole chunks, the shortest first. A prompt that is text and one that is its tokens have
// different keys.
func prefixKeys(p prompt) []uint64 {
	var hash maphash.Hash
	hash.SetSeed(prefixSeed)
	if p.tokens == nil {
		keys := make([]uint64, 0, min(len(p.text)/chunkBytes, maxChunks))
		for len(keys) < cap(keys) {
			start := len(keys) * chunkBytes
			_, _ = hash.WriteString(p.text[start : start+chunkBytes])
			keys = append(keys, hash.Sum64())
		}
		return keys
	}
	_ = hash.WriteByte('t')
	keys := make([]uint64, 0, min(len(p.tokens)/chunkTokens, maxChunks))
	var chunk [4 * chunkTokens]byte
	for len(keys) < cap(keys) {
		for i, token := range p.tokens[len(keys)*chunkTokens:][:chunkTokens] {
			binary.LittleEndian.PutUint32(chunk[4*i:], token)
		}
		_, _ = hash.Write(chunk[:])
		keys = append(keys, hash.Sum64())
	}
	return keys
}
