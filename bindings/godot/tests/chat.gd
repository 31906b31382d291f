extends SceneTree
## What NanovllmChat promises, one function per promise. As tests.gd.

const Chat := preload("res://addons/nanovllm/nanovllm_chat.gd")
const QUESTION := "list all prime numbers within 20"
const PRIMES := "Prime numbers within 20: 2, 3, 5, 7, 11, 13, 17, 19."

var failures := 0
var engine: NanovllmEngine
var ends := {}
var refusals: Array[String] = []


func _initialize() -> void:
	await process_frame
	engine = NanovllmEngine.new()
	engine.model_path = "res://model"
	engine.num_threads = 1
	engine.kv_cache_bytes = 16 << 20
	root.add_child(engine)
	check(engine.open() == "", engine.get_last_error())
	for test in get_method_list().map(func(method): return method.name).filter(func(name): return name.begins_with("test_")):
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


func made(system := "") -> Node:
	var chat := Chat.new()
	chat.engine = engine
	chat.system = system
	chat.options = {"temperature": 0, "max_tokens": 64}
	chat.answered.connect(func(answer: String, reason: String): ends[chat] = [answer, reason])
	chat.failed.connect(func(message: String): refusals.append(message))
	root.add_child(chat)
	return chat


func until(condition: Callable) -> void:
	var frames := 0
	while not condition.call() and frames < 600:
		frames += 1
		await process_frame
	check(condition.call(), "what was waited for happened")


func test_the_history_is_kept_and_sent() -> void:
	var chat := made("You are brief.")
	check(chat.send(QUESTION) > 0 and chat.is_answering(), "it is being answered")
	await until(func(): return not chat.is_answering())
	check(ends[chat][0] == chat.answer and ends[chat][1] == "stop", str(ends))
	chat.send("and again")
	await until(func(): return not chat.is_answering())
	check(chat.messages.map(func(one): return one.role) == ["user", "assistant", "user", "assistant"], str(chat.messages))
	check(chat.messages[0].content == QUESTION and chat.messages[3].content == chat.answer, str(chat.messages))
	# The last answer is that of the whole conversation.
	var asked: Array = [{"role": "system", "content": "You are brief."}] + chat.messages.slice(0, 3)
	var text := [""]
	var id := engine.add_chat(asked, chat.options)
	var hear := func(of: int, part: String): text[0] += part if of == id else ""
	engine.text_generated.connect(hear)
	await until(func(): return engine.is_finished())
	engine.text_generated.disconnect(hear)
	check(text[0] == chat.answer, "%s is not %s" % [text[0], chat.answer])
	chat.reset()
	check(chat.messages.is_empty() and chat.answer == "", "all is forgotten")
	chat.free()


func test_characters_share_an_engine() -> void:
	var chats := [made(), made(), made()]
	for chat: Node in chats:
		chat.send(QUESTION)
	await until(func(): return chats.all(func(chat: Node): return not chat.is_answering()))
	for chat: Node in chats:
		check(chat.answer == PRIMES and chat.messages.size() == 2, str(chat.messages))
		chat.free()


func test_an_answer_that_is_cancelled_is_kept_as_far_as_it_came() -> void:
	var chat := made()
	chat.options = {"temperature": 0, "ignore_eos": true}
	chat.send("hello")
	await until(func(): return chat.answer != "")
	check(chat.send("another") == 0 and "is being answered" in refusals[0], str(refusals))
	check(chat.cancel(), "it ran")
	await until(func(): return not chat.is_answering())
	check(ends[chat][1] == "cancelled" and chat.messages[1].content == chat.answer, str(ends))
	check(not chat.cancel(), "nothing is left to cancel")
	# One that is forgotten says no more.
	chat.send("hello")
	await process_frame
	chat.reset()
	ends.clear()
	await until(func(): return engine.is_finished())
	check(chat.messages.is_empty() and chat.answer == "" and ends.is_empty(), str(chat.messages))
	chat.free()


func test_a_question_that_fails_leaves_the_history_as_it_was() -> void:
	var chat := made()
	chat.options = {"maximum": 3}
	check(chat.send("hello") == 0 and "maximum" in refusals[0], str(refusals))
	chat.options = {}
	check(chat.send("long ".repeat(20000)) == 0, "too long")
	chat.engine = null
	check(chat.send("hello") == 0 and "must be a NanovllmEngine" in refusals[2], str(refusals))
	check(chat.messages.is_empty() and not chat.is_answering(), "nothing was said")
	check(Chat.missing_library() == "", "the extension is loaded")
	chat.free()
