package nanovllm_test

import "testing"

// What a step costs in Go besides the library's own work: an idle step does none.
func BenchmarkStepOfNothing(b *testing.B) {
	engine := open(b, demoConfig())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := engine.Step(0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOutputsOfNothing(b *testing.B) {
	engine := open(b, demoConfig())
	b.ReportAllocs()
	for b.Loop() {
		for range engine.Outputs() {
			b.Fatal("an output")
		}
	}
}

func BenchmarkFinished(b *testing.B) {
	engine := open(b, demoConfig())
	b.ReportAllocs()
	for b.Loop() {
		engine.Finished()
	}
}

// A step that decodes 16 sequences, and the copies of its outputs.
func BenchmarkStepOf16Sequences(b *testing.B) {
	engine := open(b, demoConfig())
	b.ReportAllocs()
	for b.Loop() {
		if engine.Finished() {
			for range 16 {
				if _, err := engine.AddTokens([]uint32{5, 6, 7}, endless()); err != nil {
					b.Fatal(err)
				}
			}
		}
		if _, err := engine.Step(0); err != nil {
			b.Fatal(err)
		}
		for range engine.Outputs() {
		}
	}
}
