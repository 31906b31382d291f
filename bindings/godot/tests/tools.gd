extends SceneTree
## Tools, and answers that are parsed: one function per promise. As tests.gd.

const Chat := preload("res://addons/nanovllm/nanovllm_chat.gd")
const TOOLS := [{"type": "function", "function": {
	"name": "give_item",
	"description": "Gives the player an item.",
	"parameters": {
		"type": "object",
		"properties": {"item": {"enum": ["sword", "rope"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
		"required": ["item", "count"],
		"additionalProperties": false,
	},
}}]
const QUESTION := [{"role": "user", "content": "a rope, please"}]
## A model that knows nothing and is as random as can be.
const REQUIRED := {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": false, "max_thinking_tokens": 0, "max_tokens": 200, "temperature": 8, "seed": 3}
## What a grammar makes the model write.
const CALL := "<tool_call>\\n\\{\"name\": \"give_item\", \"arguments\": \\{\"item\": \"rope\", \"count\": 2\\}\\}\\n</tool_call>"

var failures := 0
var engine: NanovllmEngine
## What the signals said, by id.
var texts := {}
var thoughts := {}
var calls := {}
var messages := {}
var ends := {}
var refusals: Array[String] = []


func _initialize() -> void:
	await process_frame
	engine = opened()
	for test in get_method_list().map(func(method): return method.name).filter(func(name): return name.begins_with("test_")):
		for heard: Dictionary in [texts, thoughts, calls, messages, ends]:
			heard.clear()
		refusals.clear()
		var before := failures
		await call(test)
		print("%s  %s" % ["ok    " if failures == before else "FAILED", test.trim_prefix("test_").replace("_", " ")])
	engine.free()
	print("%d failures" % failures)
	quit(failures)


func check(is_true: bool, what: String) -> void:
	if not is_true:
		failures += 1
		printerr("not true: ", what)


func opened() -> NanovllmEngine:
	var made := NanovllmEngine.new()
	made.model_path = "res://model"
	made.num_threads = 1
	made.kv_cache_bytes = 16 << 20
	made.text_generated.connect(func(id: int, text: String): texts[id] = texts.get(id, "") + text)
	made.reasoning_generated.connect(func(id: int, text: String): thoughts[id] = thoughts.get(id, "") + text)
	made.tool_called.connect(func(id: int, tool: String, arguments: Dictionary): calls[id] = calls.get(id, []) + [[tool, arguments]])
	made.message_completed.connect(func(id: int, message: Dictionary):
		check(not ends.has(id), "the message comes before the end")
		messages[id] = message)
	made.finished.connect(func(id: int, reason: String): ends[id] = reason)
	made.failed.connect(func(id: int, message: String):
		ends[id] = "failed"
		refusals.append(message))
	root.add_child(made)
	check(made.open() == "", made.get_last_error())
	return made


func until(condition: Callable) -> void:
	var frames := 0
	while not condition.call() and frames < 600:
		frames += 1
		await process_frame
	check(condition.call(), "what was waited for happened")


## Asks, waits, and returns the id.
func answered(options: Dictionary, asked: Array = QUESTION) -> int:
	var id := engine.generate_chat(asked, options)
	check(id != 0, engine.get_last_error())
	if id != 0:
		await until(func(): return ends.has(id))
	return id


## An answer that is exactly this text.
func written(text: String, options := {}) -> int:
	var id := engine.generate("<|im_start|>assistant\n", {"regex": text, "parse_answer": true, "max_tokens": 400}.merged(options, true))
	check(id != 0, engine.get_last_error())
	await until(func(): return ends.has(id))
	return id


func with(options: Dictionary, more: Dictionary) -> Dictionary:
	return options.merged(more, true)


func check_call(call: Array) -> void:
	var arguments: Dictionary = call[1]
	check(call[0] == "give_item" and arguments.size() == 2, str(call))
	check(arguments.item in ["sword", "rope"] and int(arguments.count) in range(1, 10), str(call))


func test_a_required_call_is_valid_whatever_the_model_thinks() -> void:
	for seed in 5:
		var id: int = await answered(with(REQUIRED, {"seed": seed}))
		check(ends[id] == "stop" and calls.get(id, []).size() == 1, str(ends) + str(calls))
		check_call(calls[id][0])
		check(not texts.has(id), "a call is no text: %s" % texts)
		check(messages[id].role == "assistant" and messages[id].content == "", str(messages))
		check(messages[id].tool_calls[0].function == {"name": "give_item", "arguments": calls[id][0][1]}, str(messages))


func test_tools_may_be_json_and_a_tool_may_be_named() -> void:
	for tools in [JSON.stringify(TOOLS), TOOLS]:
		var id: int = await answered(with(REQUIRED, {"tools": tools, "tool_choice": "named", "tool_name": "give_item"}))
		check_call(calls[id][0])
	var by_number: int = await answered(with(REQUIRED, {"tool_choice": 2}))
	check_call(calls[by_number][0])


func test_content_reasoning_and_calls_are_told_apart() -> void:
	var id: int = await written("<think>\\nHm 世界\\.\\n</think>\\n\\nHere\\.\\n%s\\n%s" % [CALL, CALL])
	var made := ["give_item", {"item": "rope", "count": 2.0}]
	check(thoughts[id] == "Hm 世界." and texts[id] == "Here." and calls[id] == [made, made], "%s %s %s" % [thoughts, texts, calls])
	check(messages[id].content == "Here." and messages[id].reasoning_content == "Hm 世界." and messages[id].tool_calls.size() == 2, str(messages))
	# As it is.
	var raw: int = await written("Here\\.%s" % CALL, {"parse_answer": false})
	check(texts[raw].begins_with("Here.<tool_call>") and not messages.has(raw) and not calls.has(raw), str(texts))


func test_a_call_that_breaks_is_text() -> void:
	var id: int = await written("Yes\\.<tool_call>\\n\\{\"name\": 3\\}\\n</tool_call>")
	check(texts[id].begins_with("Yes.<tool_call>") and not calls.has(id) and messages[id].content == texts[id], str(texts))


func test_the_conversation_goes_on_after_a_call() -> void:
	var id: int = await answered(REQUIRED)
	var asked: Array = QUESTION + [messages[id], {"role": "tool", "content": "done"}]
	var next: int = await answered({"tools": TOOLS, "max_tokens": 8, "temperature": 0}, asked)
	check(ends[next] in ["stop", "length"] and messages[next].role == "assistant", str(ends))


func prompt_tokens(options: Dictionary) -> int:
	var before: int = engine.stats()["prompt_tokens"] + engine.stats()["cached_tokens"]
	await answered(with({"max_tokens": 1, "temperature": 0}, options))
	return engine.stats()["prompt_tokens"] + engine.stats()["cached_tokens"] - before


func test_the_template_gets_the_tools() -> void:
	var none: int = await prompt_tokens({})
	var all: int = await prompt_tokens({"tools": TOOLS})
	check(all > none + 20, "%d tokens, and %d with tools" % [none, all])
	check(await prompt_tokens({"tools": TOOLS, "tool_choice": "none"}) == none, "none by choice")
	check(await prompt_tokens({"tools": TOOLS, "template_options": {}}) == all, "beside no other options")
	check(await prompt_tokens({"tools": TOOLS, "template_options": {"enable_thinking": true}}) == all, "beside other options")
	check(await prompt_tokens({"tools": TOOLS, "template_options": {"tools": []}}) == none, "those of the template come first")


func test_reasoning_is_bounded() -> void:
	var asked := "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n"
	var options := {"parse_answer": true, "temperature": 0, "max_tokens": 30, "ignore_eos": true}
	var none := engine.generate(asked, with(options, {"max_thinking_tokens": 0}))
	var some := engine.generate(asked, with(options, {"max_thinking_tokens": 4}))
	await until(func(): return ends.has(none) and ends.has(some))
	check(not thoughts.has(none) and thoughts.has(some) and texts[none] != "" and texts[some] != "", "%s %s" % [thoughts, texts])


func test_a_handler_may_close_and_cancel() -> void:
	var other := opened()
	var several := with(REQUIRED, {"parallel_tool_calls": true, "max_tokens": 400})
	other.tool_called.connect(func(_id: int, _tool: String, _arguments: Dictionary): other.close(), CONNECT_ONE_SHOT)
	var id := other.generate_chat(QUESTION, several)
	await until(func(): return ends.has(id))
	check(ends[id] == "cancelled" and calls[id].size() == 1 and not messages.has(id), "%s %s" % [ends, calls])
	check(other.open() == "", "it opens again")
	other.message_completed.connect(func(_id: int, _message: Dictionary): other.close(), CONNECT_ONE_SHOT)
	id = other.generate_chat(QUESTION, REQUIRED)
	await until(func(): return ends.has(id))
	check(ends[id] == "stop" and messages.has(id), str(ends))
	check(other.open() == "", "it opens again")
	id = other.generate_chat(QUESTION, {"parse_answer": true, "ignore_eos": true})
	await until(func(): return texts.has(id))
	check(other.cancel(id), "it ran")
	await until(func(): return ends.has(id))
	check(ends[id] == "cancelled" and messages[id].content.begins_with(texts[id].strip_edges()), "what there is of a message")
	other.tool_called.connect(func(_id: int, _tool: String, _arguments: Dictionary): other.queue_free(), CONNECT_ONE_SHOT)
	id = other.generate_chat(QUESTION, several)
	var freed: WeakRef = weakref(other)
	await until(func(): return freed.get_ref() == null)


func test_a_conversation_keeps_its_calls() -> void:
	var chat := Chat.new()
	var heard := []
	chat.engine = engine
	chat.options = REQUIRED
	chat.tool_called.connect(func(tool: String, arguments: Dictionary): heard.append([tool, arguments]))
	root.add_child(chat)
	chat.send("a rope, please")
	await until(func(): return not chat.is_answering())
	check(heard.size() == 1 and chat.answer == "" and chat.messages.size() == 2, str(chat.messages))
	check(chat.messages[1].tool_calls[0].function.arguments == heard[0][1], str(chat.messages))
	chat.options = {"tools": TOOLS, "temperature": 0, "max_tokens": 30}
	chat.send("done", "tool")
	await until(func(): return not chat.is_answering())
	check(chat.messages.size() == 4 and chat.messages[2] == {"role": "tool", "content": "done"}, str(chat.messages))
	check(chat.messages[3].content == chat.answer and chat.answer != "", str(chat.messages))
	chat.free()


func test_parsing_leaves_no_object_behind() -> void:
	var counts := []
	for i in 6:
		await answered(REQUIRED)
		counts.append(Performance.get_monitor(Performance.OBJECT_COUNT))
	# The first answer leaves what stays.
	check(counts[1] == counts[5], "numbers of objects: %s" % [counts])


func test_bad_tools_are_refused_by_name() -> void:
	for row in [
		[{"tools": 3}, "option tools must be an Array of Dictionaries, or its JSON as a String, but is int 3"],
		[{"tools": "{"}, "option tools must be an Array"],
		[{"tools": "{}"}, "option tools must be an Array"],
		[{"tools": [3]}, "option tools[0] must be a Dictionary"],
		[{"tools": [{"type": Vector2.ZERO}]}, "option tools has a value of type Vector2"],
		[{"tools": [{"type": "function", "function": {}}]}, "name"],
		[{"tools": TOOLS, "tool_choice": "some"}, "option tool_choice must be auto, none, required, named or 0 to 3"],
		[{"tools": TOOLS, "tool_choice": 4}, "option tool_choice must be auto"],
		[{"tool_choice": "required"}, "tool_choice"],
		[{"tools": TOOLS, "tool_choice": "named"}, "tool_name"],
		[{"tools": TOOLS, "tool_choice": "named", "tool_name": "take"}, "take"],
		[{"tools": TOOLS, "tool_name": 3}, "option tool_name must be a String"],
		[{"tools": TOOLS, "strict_tools": 1}, "option strict_tools must be a bool"],
		[{"tools": TOOLS, "keep_special_tokens": false}, "option keep_special_tokens is false, but must be true"],
		[{"parse_answer": 1}, "option parse_answer must be a bool"],
		[{"max_thinking_tokens": -1}, "option max_thinking_tokens must be an int"],
		[{"tools": TOOLS, "tool_choice": "required", "json_schema": {}}, "tool"],
	]:
		refusals.clear()
		check(engine.generate_chat(QUESTION, row[0]) == 0 and refusals.size() == 1, "refused: %s" % row[1])
		check(engine.get_last_error().contains(row[1]), "%s in: %s" % [row[1], engine.get_last_error()])
	var kept: int = await answered({"tools": TOOLS, "parse_answer": false, "keep_special_tokens": false, "max_tokens": 2})
	check(not messages.has(kept), "an answer that is not parsed")
