package main

import (
	"slices"
	"strings"
	"testing"
)

// chunk returns the text of one chunk.
func chunk(letter string) string { return strings.Repeat(letter, chunkBytes) }

func textKeys(chunks ...string) []uint64 { return prefixKeys(prompt{text: strings.Join(chunks, "")}) }

func TestAPromptGoesWhereItsLongestPrefixIs(t *testing.T) {
	r := newRouter(4)
	a, b, c, d := chunk("a"), chunk("b"), chunk("c"), chunk("d")
	idle := []int{0, 0, 0}
	// Turns send the three prompts to the replicas 0, 1 and 2.
	for want, keys := range [][]uint64{textKeys(b), textKeys(a, b, c), textKeys(d)} {
		if got, why := r.choose(keys, idle); got != want || why != byLoad {
			t.Fatalf("prompt %d went to %d for its %s", want, got, why)
		}
	}
	cases := []struct {
		name string
		keys []uint64
		want int
		why  reason
	}{
		{"the same prompt", textKeys(a, b, c), 1, byPrefix},
		{"a longer one", textKeys(a, b, c, d, d), 1, byPrefix},
		{"a shorter one", textKeys(a), 1, byPrefix},
		{"one that differs after its first chunk", textKeys(a, d), 1, byPrefix},
		{"another one", textKeys(d, a), 2, byPrefix},
		{"the same chunk at another place", textKeys(c, b), 0, byLoad},
		{"less than a chunk", textKeys("a"), 1, byLoad},
	}
	for _, c := range cases {
		if got, why := r.choose(c.keys, idle); got != c.want || why != c.why {
			t.Errorf("%s: it went to %d for its %s", c.name, got, why)
		}
	}
}

func TestALongerPrefixCountsMoreThanALaterOne(t *testing.T) {
	r := newRouter(0)
	a, b := chunk("a"), chunk("b")
	r.choose(textKeys(a, b), []int{1, 0})
	r.choose(textKeys(a), []int{0, 1})
	if got, why := r.choose(textKeys(a, b), []int{0, 0}); got != 1 || why != byPrefix {
		t.Errorf("it went to %d for its %s", got, why)
	}
}

func TestTheReplicaOfAPrefixIsTheOneThatHadItLast(t *testing.T) {
	r := newRouter(0)
	shared := textKeys(chunk("a"))
	r.choose(shared, []int{0, 1})
	r.choose(shared, []int{1, 0})
	if got, why := r.choose(shared, []int{0, 0}); got != 1 || why != byPrefix {
		t.Errorf("it went to %d for its %s", got, why)
	}
}

func TestAPrefixYieldsToMoreLoadThanTheSkew(t *testing.T) {
	const skew = 3
	keys := textKeys(chunk("a"))
	cases := []struct {
		loads []int
		want  int
		why   reason
	}{
		{[]int{0, 0}, 0, byPrefix},
		{[]int{skew, 0}, 0, byPrefix},
		{[]int{10 + skew, 10}, 0, byPrefix},
		{[]int{skew + 1, 0}, 1, byLoad},
		{[]int{skew + 1, unavailable}, 0, byPrefix},
		{[]int{unavailable, 100}, 1, byLoad},
	}
	for _, c := range cases {
		r := newRouter(skew)
		r.choose(keys, []int{0, 1})
		if got, why := r.choose(keys, c.loads); got != c.want || why != c.why {
			t.Errorf("%v: it went to %d for its %s", c.loads, got, why)
		}
	}
}

func TestAnUnavailableReplicaLeavesShorterPrefixesToOthers(t *testing.T) {
	r := newRouter(9)
	a, b := chunk("a"), chunk("b")
	r.choose(textKeys(a, b), []int{0, 1, 1})
	r.choose(textKeys(a), []int{unavailable, 0, 1})
	if got, why := r.choose(textKeys(a, b), []int{unavailable, 5, 0}); got != 1 || why != byPrefix {
		t.Errorf("it went to %d for its %s", got, why)
	}
	if got, _ := r.choose(textKeys(a, b), []int{unavailable, unavailable, unavailable}); got >= 0 {
		t.Errorf("%d was chosen, which is unavailable", got)
	}
}

func TestEqualLoadsTakeTurns(t *testing.T) {
	r := newRouter(0)
	var turns []int
	for range 6 {
		got, _ := r.choose(nil, []int{2, 2, 2})
		turns = append(turns, got)
	}
	if !slices.Equal(turns, []int{0, 1, 2, 0, 1, 2}) {
		t.Errorf("%v", turns)
	}
	if got, _ := r.choose(nil, []int{2, 1, 2}); got != 1 {
		t.Errorf("%d was chosen, but 1 has the least load", got)
	}
}

func TestTheTableForgetsWhatWasNotUsed(t *testing.T) {
	const capacity = 8
	table := newPrefixTable(capacity)
	available := []int{0, 0}
	used := textKeys(chunk("a"))
	table.record(used, 1)
	for i := range 100 {
		table.record([]uint64{uint64(i)}, 0)
		if len(table.entries) > capacity || table.recent.Len() != len(table.entries) {
			t.Fatalf("%d entries and %d in the order of use, but at most %d are allowed", len(table.entries), table.recent.Len(), capacity)
		}
		if i%2 == 0 {
			table.record(used, 1)
		}
		if replica, found := table.longest(used, available); !found || replica != 1 {
			t.Fatalf("an entry that is used is forgotten after %d others", i+1)
		}
	}
	if _, found := table.longest([]uint64{90}, available); found {
		t.Error("an entry that is not used is kept")
	}
	// Of a prompt that is larger than the table, the beginning is kept.
	long := make([]uint64, 3*capacity)
	for i := range long {
		long[i] = 1000 + uint64(i)
	}
	table.record(long, 1)
	if _, found := table.longest(long[:1], available); !found || len(table.entries) != capacity {
		t.Errorf("the beginning of a long prompt is forgotten; %d entries", len(table.entries))
	}
}

func TestKeysAreThoseOfWholeChunks(t *testing.T) {
	a, b := chunk("a"), chunk("b")
	whole := textKeys(a, b)
	if len(whole) != 2 || !slices.Equal(whole, textKeys(a, b, "and less than a chunk")) || whole[0] != textKeys(a)[0] {
		t.Errorf("keys of text: %v", whole)
	}
	if other := textKeys("b"+a[1:], b); other[0] == whole[0] || other[1] == whole[1] {
		t.Error("prompts with different beginnings have equal keys")
	}
	tokens := make([]uint32, 2*chunkTokens+1)
	keys := prefixKeys(prompt{tokens: tokens})
	tokens[chunkTokens] = 1
	others := prefixKeys(prompt{tokens: tokens})
	if len(keys) != 2 || keys[0] != others[0] || keys[1] == others[1] {
		t.Errorf("keys of tokens: %v and %v", keys, others)
	}
	spelled := strings.Repeat("a\x00\x00\x00", chunkTokens)
	if same := prefixKeys(prompt{tokens: slices.Repeat([]uint32{'a'}, chunkTokens)}); same[0] == textKeys(spelled)[0] {
		t.Error("a text has the keys of tokens")
	}
	if long := prefixKeys(prompt{text: strings.Repeat(a, maxChunks+5)}); len(long) != maxChunks {
		t.Errorf("%d keys, but at most %d are allowed", len(long), maxChunks)
	}
}
