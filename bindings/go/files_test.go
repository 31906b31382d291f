package nanovllm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"libnanovllm/bindings/go"
)

// modelFiles returns the files of the demo model, each read into memory of Go.
func modelFiles(t testing.TB) []nanovllm.ModelFile {
	t.Helper()
	entries, err := os.ReadDir(modelFolder())
	if err != nil {
		t.Fatal(err)
	}
	var files []nanovllm.ModelFile
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(modelFolder(), entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, nanovllm.ModelFile{Name: entry.Name(), Data: data})
	}
	return files
}

func givenConfig() nanovllm.Config {
	config := demoConfig()
	config.ModelPath = ""
	return config
}

func answersPrimes(t *testing.T, files []nanovllm.ModelFile, config nanovllm.Config) {
	t.Helper()
	engine, err := nanovllm.NewFrom(config, files)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	// What only the engine refers to must stay.
	clear(files)
	runtime.GC()
	runtime.GC()
	outputs, err := engine.Generate(context.Background(), []string{primesPrompt(t, engine)}, &nanovllm.RequestOptions{MaxTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	if text := outputs[0].Text; text != primes {
		t.Errorf("%q", text)
	}
}

func TestFilesInMemory(t *testing.T) {
	answersPrimes(t, modelFiles(t), givenConfig())
	config := givenConfig()
	config.LoadMode = nanovllm.LoadRead
	answersPrimes(t, modelFiles(t), config)
}

func TestPartsOfAPackFile(t *testing.T) {
	pack, err := os.Create(filepath.Join(t.TempDir(), "pack"))
	if err != nil {
		t.Fatal(err)
	}
	var at int64
	files := modelFiles(t)
	for i, file := range files {
		if _, err := pack.Write(append([]byte("-"), file.Data...)); err != nil {
			t.Fatal(err)
		}
		size := int64(len(file.Data))
		files[i] = nanovllm.ModelFile{Name: "folder/" + file.Name, File: pack, Offset: at + 1, Size: size}
		at += 1 + size
	}
	config := givenConfig()
	config.ModelPath = "folder"
	answersPrimes(t, files, config)
	if err := pack.Close(); err != nil {
		t.Error(err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	files := modelFiles(t)
	for _, file := range []nanovllm.ModelFile{
		{Name: "a\x00b"},
		{Name: "../config.json"},
		{Name: "config.json"},
		{Name: "x", Size: 1},
		{Name: "x", Data: []byte("y"), File: os.Stdin},
	} {
		_, err := nanovllm.NewFrom(givenConfig(), append(files[:len(files):len(files)], file))
		if !errors.Is(err, nanovllm.ErrInvalidArgument) {
			t.Errorf("%q: %v", file.Name, err)
		}
	}
	folder, err := os.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	_, err = nanovllm.NewFrom(givenConfig(), []nanovllm.ModelFile{{Name: "config.json", File: folder, Size: 1}})
	if !errors.Is(err, nanovllm.ErrModel) {
		t.Error(err)
	}
	if _, err = nanovllm.New(givenConfig()); !errors.Is(err, nanovllm.ErrInvalidArgument) {
		t.Error(err)
	}
}
