package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// readFile reads a file in TOML. Its keys are the names of flags, with the meaning of the flags; those of the command line come first.
// Each [[models]] has the flags of a model, and preload; what it does not set is as outside of the models.
func readFile(path string, flags *flag.FlagSet, given map[string]bool, common *modelSpec) ([]*modelSpec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := toml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	folder := filepath.Dir(path)
	for _, key := range slices.Sorted(maps.Keys(file)) {
		switch {
		case key == "models":
		case key == "config" || flags.Lookup(key) == nil:
			return nil, fmt.Errorf("%q is not the name of a flag", key)
		case given[key]:
		default:
			if err := setFlag(flags, key, relative(folder, key, file[key])); err != nil {
				return nil, err
			}
			given[key] = true
		}
	}
	if file["models"] == nil {
		return nil, nil
	}
	tables, isTables := file["models"].([]map[string]any)
	if !isTables || len(tables) == 0 {
		return nil, errors.New("models is not a list of tables: write [[models]] before each")
	}
	if common.config.KVCacheBytes == 0 && len(tables) > 1 {
		// Else the first of several models would take a part of the memory that the others need.
		common.config.KVCacheBytes = defaultKVCacheBytes
	}
	var models []*modelSpec
	for i, table := range tables {
		one := *common
		one.name, one.aliases = "", nil
		own := flag.NewFlagSet("", flag.ContinueOnError)
		own.SetOutput(io.Discard)
		modelFlags(own, &one)
		own.BoolVar(&one.preload, "preload", false, "")
		for _, key := range slices.Sorted(maps.Keys(table)) {
			if own.Lookup(key) == nil {
				return nil, fmt.Errorf("models[%d]: %q is not the name of a flag of a model", i, key)
			}
			if key == "engine" {
				one.engines = nil // those of the file for all models
			}
			if err := setFlag(own, key, relative(folder, key, table[key])); err != nil {
				return nil, fmt.Errorf("models[%d]: %w", i, err)
			}
		}
		if one.config.ModelPath == "" {
			return nil, fmt.Errorf("models[%d] has no model, the path of its folder or file", i)
		}
		models = append(models, &one)
	}
	return models, nil
}

// defaultKVCacheBytes is the default of kv-cache-bytes with several models.
const defaultKVCacheBytes = 1 << 30

// relative makes paths of a file relative to its folder.
func relative(folder, key string, value any) any {
	path, isText := value.(string)
	switch key {
	case "model", "api-key-file", "tls-cert", "tls-key":
		if isText && !filepath.IsAbs(path) {
			return filepath.Join(folder, path)
		}
	}
	return value
}

// setFlag sets a flag to a value of TOML. A list sets a flag that may be repeated several times, and another one to its elements with
// commas between them.
func setFlag(flags *flag.FlagSet, key string, value any) error {
	texts := []string{fmt.Sprint(value)}
	if list, isList := value.([]any); isList {
		texts = texts[:0]
		for _, element := range list {
			texts = append(texts, fmt.Sprint(element))
		}
		if key != "engine" && key != "api-key" {
			texts = []string{strings.Join(texts, ",")}
		}
	}
	if _, isTable := value.(map[string]any); isTable {
		return fmt.Errorf("%s is a table, but it must be a value", key)
	}
	for _, text := range texts {
		if err := flags.Set(key, text); err != nil {
			if key == "api-key" {
				return fmt.Errorf("%s cannot be used", key)
			}
			return fmt.Errorf("%s = %s: %w", key, text, err)
		}
	}
	return nil
}
