extends SceneTree
## What the node promises, one function per promise. Run by scripts/godot.sh inside the demo project; the exit code is the number of
## failures.

const GREEDY := {"temperature": 0, "max_tokens": 40}
const INTRODUCTION := "I am the demo model of libnanovllm"

var failures := 0
var texts := {}
var ends := {}
var refusals: Array[String] = []


func _initialize() -> void:
	await process_frame
	for test in get_method_list().map(func(method): return method.name).filter(func(name): return name.begins_with("test_")):
		texts.clear()
		ends.clear()
		refusals.clear()
		var before := failures
		await call(test)
		print("%s  %s" % ["ok    " if failures == before else "FAILED", test.trim_prefix("test_").replace("_", " ")])
	print("%d failures" % failures)
	quit(failures)


func check(is_true: bool, what: String) -> void:
	if not is_true:
		failures += 1
		printerr("not true: ", what)


func made(path := "res://model") -> NanovllmEngine:
	var engine := NanovllmEngine.new()
	engine.model_path = path
	engine.num_threads = 1
	engine.kv_cache_bytes = 16 << 20
	engine.text_generated.connect(func(id: int, text: String): texts[id] = texts.get(id, "") + text)
	engine.finished.connect(func(id: int, reason: String): ends[id] = reason)
	engine.failed.connect(func(id: int, message: String):
		ends[id] = "failed"
		refusals.append(message))
	root.add_child(engine)
	return engine


func opened() -> NanovllmEngine:
	var engine := made()
	var message: String = engine.open()
	check(message == "" and engine.is_open(), message)
	return engine


func ask(engine: NanovllmEngine, text := "introduce yourself", options := GREEDY) -> int:
	return engine.generate_chat([{"role": "user", "content": text}], options)


## Waits at most 600 frames, about ten seconds.
func until(condition: Callable) -> int:
	var frames := 0
	while not condition.call() and frames < 600:
		frames += 1
		await process_frame
	check(condition.call(), "what was waited for happened")
	return frames


func test_an_answer_arrives_in_pieces_over_several_frames() -> void:
	var engine := opened()
	engine.step_budget_ms = 0.1
	var id := ask(engine)
	var frames: int = await until(func(): return ends.has(id))
	check(frames > 1, "more than one frame")
	check(texts[id].begins_with(INTRODUCTION), texts[id])
	check(engine.is_finished() and engine.stats()["generated_tokens"] > 0, "finished, and counted")
	check(engine.trim() >= 0 and engine.trim() == 0, "memory is given back")
	engine.free()


func test_a_script_with_a_process_of_its_own_is_stepped() -> void:
	var engine := made()
	var script := GDScript.new()
	script.source_code = "extends NanovllmEngine\nfunc _process(_delta): pass\n"
	check(script.reload() == OK, "the script compiles")
	engine.set_script(script)
	engine.open()
	var id := ask(engine)
	await until(func(): return ends.has(id))
	check(ends[id] == "stop" or ends[id] == "length", ends[id])
	engine.free()


func test_text_is_utf8_both_ways() -> void:
	var engine := opened()
	var wanted := "Grüße, 世界 🎮"
	var id := engine.generate("x", {"regex": wanted})
	await until(func(): return ends.has(id))
	check(texts[id] == wanted, texts[id])
	engine.free()


func test_json_follows_its_schema() -> void:
	var engine := opened()
	var schema := {"type": "object", "properties": {"b": {"const": 2}, "a": {"enum": ["x\n\"\u0001"]}}, "required": ["b", "a"], "additionalProperties": false}
	var id := engine.generate("x", {"json_schema": schema, "max_tokens": 100})
	await until(func(): return ends.has(id))
	check(JSON.parse_string(texts[id]) == {"b": 2.0, "a": "x\n\"\u0001"}, texts[id])
	engine.free()


func test_options_are_taken() -> void:
	var engine := opened()
	var options := {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 7, "max_tokens": 12.0, &"ignore_eos": true}
	var first := ask(engine, "hello", options)
	var second := ask(engine, "hello", options)
	var stopped := ask(engine, "introduce yourself", {"temperature": 0, "stop": ["demo"]})
	var packed := ask(engine, "introduce yourself", {"temperature": 0, "stop": PackedStringArray(["demo"]), "include_stop": true})
	await until(func(): return engine.is_finished())
	check(ends[first] == "length" and texts[first] == texts[second], "a seed repeats")
	check(ends[stopped] == "stop" and texts[stopped] == "I am the ", texts[stopped])
	check(texts[packed] == "I am the demo", texts[packed])
	engine.free()


func test_bad_options_are_refused_by_name() -> void:
	var engine := opened()
	var itself := {}
	itself["type"] = itself
	for row in [
		[{"max_token": 3}, "unknown option max_token"],
		[{"n": 2}, "unknown option n"],
		[{3: 3}, "key of type int"],
		[{"max_tokens": "3"}, "option max_tokens must be an int"],
		[{"max_tokens": -1}, "option max_tokens must be an int"],
		[{"max_tokens": 1.5}, "option max_tokens must be an int"],
		[{"max_tokens": 1 << 40}, "option max_tokens must be an int"],
		[{"max_tokens": 0}, "max_tokens"],
		[{"temperature": null}, "option temperature must be a float"],
		[{"temperature": NAN}, "temperature"],
		[{"temperature": -1}, "temperature"],
		[{"top_p": 2}, "top_p"],
		[{"seed": -1}, "option seed"],
		[{"ignore_eos": 1}, "option ignore_eos must be a bool"],
		[{"early_stopping": "soon"}, "option early_stopping must be heuristic, at_once, never or 0 to 2"],
		[{"stop": 3}, "option stop must be an Array"],
		[{"stop": ["a", 3]}, "option stop[1] must be a String"],
		[{"stop_tokens": [-1]}, "option stop_tokens[0]"],
		[{"regex": "("}, "regex"],
		[{"regex": ["a"]}, "option regex must be a String"],
		[{"regex": "a", "lark": "b"}, "options regex and lark exclude each other"],
		[{"json_schema": {"type": "nothing"}}, "nothing"],
		[{"json_schema": {"const": Vector2.ZERO}}, "option json_schema has a value of type Vector2"],
		[{"json_schema": {1: 2}}, "option json_schema has a key of type int"],
		[{"json_schema": {"const": INF}}, "which JSON does not have"],
		[{"json_schema": itself}, "levels"],
		[{"template_options": {}}, "generate_chat"],
	]:
		refusals.clear()
		var id: int = engine.generate("x", row[0])
		check(id == 0 and refusals.size() == 1, "refused: %s" % row[1])
		check(engine.get_last_error().contains(row[1]) and refusals == [engine.get_last_error()], "%s in: %s" % [row[1], engine.get_last_error()])
	itself.clear()
	for row in [
		[[3], "messages[0] must be a Dictionary"],
		[[{"content": "x"}], "messages[0] needs a role"],
		[[{"role": 1, "content": "x"}], "messages[0] needs a role"],
		[[{"role": "user", "content": Vector2.ONE}], "messages has a value of type Vector2"],
	]:
		check(engine.generate_chat(row[0]) == 0, "refused: %s" % row[1])
		check(engine.get_last_error().contains(row[1]), "%s in: %s" % [row[1], engine.get_last_error()])
	check(engine.generate_chat([{"role": "user", "content": "x"}], {"template_options": 3}) == 0, "no number")
	check(not engine.cancel(0) and not engine.cancel(-5) and not engine.cancel(99), "nothing to cancel")
	engine.free()


func test_bad_properties_are_refused_by_name() -> void:
	for row in [
		["model_path", "", "model_path is empty"],
		["model_path", "/nowhere/at/all", "/nowhere/at/all"],
		["model_path", "user://nothing", "nothing"],
		["model_path", "res://nothing", "res://nothing"],
		["model_path", "res://main.tscn", "main.tscn"],
		["num_threads", -1, "num_threads must be from 0"],
		["max_num_seqs", 1 << 33, "max_num_seqs must be from 0"],
		["device", 9, "device must be from 0 to 2"],
		["kv_cache_bytes", -1, "kv_cache_bytes must be from 0"],
		["kv_cache_bytes", 1, "kv_cache_bytes"],
	]:
		var engine := made()
		engine.set(row[0], row[1])
		var message: String = engine.open()
		check(not engine.is_open() and message.contains(row[2]), "%s in: %s" % [row[2], message])
		check(message == engine.get_last_error(), "the last error")
		check(engine.generate("x") == 0 and refusals.back().contains("call open()"), "closed")
		check(engine.stats().is_empty() and engine.is_finished() and not engine.cancel(1), "closed")
		engine.free()
	var engine := made()
	for budget in [0, -1, NAN, INF]:
		engine.step_budget_ms = budget
		check(engine.step_budget_ms == 4.0, "the budget stays")
	engine.free()


func test_autostart_tells_why_it_failed() -> void:
	var engine := made("/nowhere")
	root.remove_child(engine)
	engine.request_ready()
	engine.autostart = true
	root.add_child(engine)
	check(refusals.size() == 1 and refusals[0].contains("/nowhere"), str(refusals))
	engine.free()


func test_opening_twice_is_refused_and_again_works() -> void:
	var engine := opened()
	check(engine.open().contains("call close()"), engine.get_last_error())
	for i in 3:
		engine.close()
		engine.close()
		check(engine.open() == "", "opens again")
	var id := ask(engine)
	await until(func(): return ends.has(id))
	check(texts[id].begins_with(INTRODUCTION), "answers after all that")
	engine.close()
	check(engine.open() == "" and ask(engine) == id + 1, "ids go on")
	engine.free()


func test_cancelling_ends_one_request() -> void:
	var engine := opened()
	engine.step_budget_ms = 0.1
	var first := ask(engine, "count to 100", {"ignore_eos": true, "temperature": 0})
	var second := ask(engine)
	await process_frame
	check(engine.cancel(first) and not engine.is_finished(), "it ran")
	await until(func(): return ends.has(second))
	check(ends[first] == "cancelled" and texts[second].begins_with(INTRODUCTION), str(ends))
	check(not engine.cancel(first), "once")
	engine.free()


func test_closing_ends_all_requests() -> void:
	var engine := opened()
	engine.step_budget_ms = 0.1
	var ids := [ask(engine), ask(engine), ask(engine)]
	await process_frame
	engine.close()
	check(ids.all(func(id): return ends.get(id) == "cancelled"), str(ends))
	await process_frame
	engine.free()


func test_a_handler_may_close_and_open() -> void:
	var engine := opened()
	var id := ask(engine)
	var other := ask(engine)
	var reopened := [0]
	engine.text_generated.connect(func(_id: int, _text: String):
		engine.close()
		check(engine.open() == "", "opens in a handler")
		reopened[0] = ask(engine, "list all prime numbers within 20"), CONNECT_ONE_SHOT)
	await until(func(): return reopened[0] != 0)
	check(ends.get(id) == "cancelled" or ends.get(other) == "cancelled", str(ends))
	await until(func(): return engine.is_finished())
	check("2, 3, 5, 7" in texts.values().reduce(func(a, b): return a + b, ""), str(texts))
	engine.free()


func test_a_freed_node_ends_its_requests() -> void:
	var engine := opened()
	engine.step_budget_ms = 0.1
	ask(engine)
	await process_frame
	engine.free()
	await process_frame
	engine = opened()
	ask(engine)
	engine.text_generated.connect(func(_id: int, _text: String): engine.queue_free(), CONNECT_ONE_SHOT)
	var freed: WeakRef = weakref(engine)
	await until(func(): return freed.get_ref() == null)
	# Never in the tree, never opened.
	NanovllmEngine.new().free()


func test_a_node_that_leaves_the_tree_pauses() -> void:
	var engine := opened()
	engine.step_budget_ms = 0.1
	var id := ask(engine)
	await process_frame
	root.remove_child(engine)
	for i in 3:
		await process_frame
	check(not ends.has(id) and not engine.is_finished(), "it waits")
	root.add_child(engine)
	await until(func(): return ends.has(id))
	engine.free()


## Loads a pack file with these files, whose names there are the keys.
func load_pack(files: Dictionary) -> void:
	var packer := PCKPacker.new()
	check(packer.pck_start("user://model.pck") == OK, "a pack file")
	for name: String in files:
		packer.add_file(name, ProjectSettings.globalize_path(files[name]))
	check(packer.flush() == OK and ProjectSettings.load_resource_pack("user://model.pck"), "it loads")


func check_introduction(path: String, wanted := INTRODUCTION) -> void:
	var engine := made(path)
	check(engine.open() == "", path + ": " + engine.get_last_error())
	var id := ask(engine)
	await until(func(): return ends.has(id))
	check(texts.get(id, "").begins_with(wanted), path + ": " + str(texts))
	engine.free()


func test_a_model_opens_inside_a_pack_file() -> void:
	var files := {}
	for name: String in DirAccess.get_files_at("res://model"):
		files["res://packed/" + name] = "res://model/" + name
	load_pack(files)
	await check_introduction("res://packed")


func test_a_split_gguf_file_opens_inside_a_pack_file() -> void:
	var gguf := preload("res://tests/gguf.gd")
	gguf.write("res://model", "user://demo")
	var parts := ["demo-00001-of-00002.gguf", "demo-00002-of-00002.gguf"]
	var text := ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]
	var files := {}
	for folder in ["res://split/", "res://several/"]:
		for name: String in parts:
			files[folder + name] = "user://" + name
		for name: String in text:
			files[folder + name] = "res://model/" + name
	files["res://several/README.md"] = "res://model/config.json"
	files["res://several/other.gguf"] = "res://model/config.json"
	load_pack(files)
	await check_introduction("res://split/" + parts[0])
	await check_introduction("res://several/" + parts[0])
	await check_introduction("res://split")
	for row in [["res://several", "config.json"], ["res://split/" + parts[1], "give the path of the first"], ["res://several/other.gguf", "other.gguf"]]:
		var engine := made(row[0])
		check(engine.open().contains(row[1]), row[1] + " in: " + engine.get_last_error())
		engine.free()


func test_the_subfolder_of_chat_templates_opens_inside_a_pack_file() -> void:
	FileAccess.open("user://fixed.jinja", FileAccess.WRITE).store_string("{{ no_such_function() }}")
	var files := {"res://named/additional_chat_templates/default.jinja": "user://fixed.jinja"}
	for name: String in DirAccess.get_files_at("res://model"):
		files["res://named/" + name] = "res://model/" + name
	load_pack(files)
	var engine := made("res://named")
	check(engine.open() == "", engine.get_last_error())
	check(ask(engine) == 0 and engine.get_last_error().contains("no_such_function"), "its template is used: " + engine.get_last_error())
	engine.free()
