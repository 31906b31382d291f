class_name NanovllmChat
extends Node
## A conversation that keeps its history, answered by a NanovllmEngine. Any number of conversations share an engine.
##
## This script names no class of the extension, so that it loads, and says what is missing, where the extension does not.

## A part of the answer.
signal text_generated(text: String)
## A part of the reasoning, if the answer is parsed.
signal reasoning_generated(text: String)
## The model has called a tool of the options. Its numbers are floats.
signal tool_called(tool: String, arguments: Dictionary)
## The answer has ended and is in the history: all of it, and the reason as NanovllmEngine.finished has it.
signal answered(answer: String, reason: String)
## The question was refused, or its answer failed. The history is as before.
signal failed(message: String)

## The NanovllmEngine that answers.
@export var engine: Node
## The first message, with the role "system"; none if it is empty.
@export_multiline var system := ""
## Options of NanovllmEngine.generate_chat.
@export var options := {}

## The history without the system message: dictionaries with role and content, and where the answer was parsed reasoning_content and
## tool_calls. A question and its answer are part of it when the answer has ended. Do not change it during an answer.
var messages: Array[Dictionary] = []
## What there is of the answer, or all of the last one.
var answer := ""

var _id := 0
var _question := {}
## The answer as the engine has parsed it; empty if it has not.
var _message := {}
var _connected: Node


## Says a text in the role "user"; the result of a tool call in the role "tool". Returns the id of the request, or 0 after failed(message).
func send(text: String, role := "user") -> int:
	var problem := _problem()
	if problem != "":
		return _refuse(problem)
	_connect()
	var asked: Array[Dictionary] = messages.duplicate()
	if system != "":
		asked.push_front({"role": "system", "content": system})
	_question = {"role": role, "content": text}
	_message = {}
	asked.append(_question)
	answer = ""
	_id = engine.generate_chat(asked, options)
	if _id == 0:
		return _refuse(engine.get_last_error())
	return _id


## Whether an answer is being generated.
func is_answering() -> bool:
	return _id != 0


## Ends the answer, which is kept as far as it came. False if there is none.
func cancel() -> bool:
	return _id != 0 and engine.cancel(_id)


## Forgets the history, and the answer that is being generated.
func reset() -> void:
	var id := _id
	_id = 0
	if id != 0 and is_instance_valid(engine):
		engine.cancel(id)
	messages.clear()
	answer = ""


func _problem() -> String:
	if not ClassDB.class_exists("NanovllmEngine"):
		return missing_library()
	if not is_instance_valid(engine) or not engine.is_class("NanovllmEngine"):
		return "engine of %s must be a NanovllmEngine, but is %s" % [name, engine]
	if _id != 0:
		return "%s is being answered: wait for answered, or call cancel() or reset() first" % name
	return ""


func _refuse(message: String) -> int:
	failed.emit(message)
	return 0


func _connect() -> void:
	if _connected == engine:
		return
	if is_instance_valid(_connected):
		_connected.text_generated.disconnect(_on_text_generated)
		_connected.reasoning_generated.disconnect(_on_reasoning_generated)
		_connected.tool_called.disconnect(_on_tool_called)
		_connected.message_completed.disconnect(_on_message_completed)
		_connected.finished.disconnect(_on_finished)
		_connected.failed.disconnect(_on_failed)
	engine.text_generated.connect(_on_text_generated)
	engine.reasoning_generated.connect(_on_reasoning_generated)
	engine.tool_called.connect(_on_tool_called)
	engine.message_completed.connect(_on_message_completed)
	engine.finished.connect(_on_finished)
	engine.failed.connect(_on_failed)
	_connected = engine


func _on_text_generated(id: int, text: String) -> void:
	if id != _id or _id == 0:
		return
	answer += text
	text_generated.emit(text)


func _on_reasoning_generated(id: int, text: String) -> void:
	if id == _id and _id != 0:
		reasoning_generated.emit(text)


func _on_tool_called(id: int, tool: String, arguments: Dictionary) -> void:
	if id == _id and _id != 0:
		tool_called.emit(tool, arguments)


func _on_message_completed(id: int, message: Dictionary) -> void:
	if id == _id and _id != 0:
		_message = message


func _on_finished(id: int, reason: String) -> void:
	if id != _id or _id == 0:
		return
	_id = 0
	if answer != "" or _message.has("tool_calls"):
		messages.append(_question)
		messages.append({"role": "assistant", "content": answer} if _message.is_empty() else _message)
	answered.emit(answer, reason)


func _on_failed(id: int, message: String) -> void:
	if id != _id or _id == 0:
		return
	_id = 0
	failed.emit(message)


## Why the extension is not loaded: the files that it consists of on this system, and which of them are not there. Empty if it is.
static func missing_library() -> String:
	if ClassDB.class_exists("NanovllmEngine"):
		return ""
	var here: String = "res://addons/nanovllm"
	var extension := here.path_join("nanovllm.gdextension")
	var config := ConfigFile.new()
	if config.load(extension) != OK:
		return "the extension of libnanovllm is not loaded, and %s is not there: put the folder addons/nanovllm into the project" % _absolute(extension)
	var key := "%s.%s" % [OS.get_name().to_lower(), Engine.get_architecture_name()]
	if not config.has_section_key("libraries", key):
		return "the extension of libnanovllm is not loaded: %s has no library for %s, but for %s" % [
			_absolute(extension), key, ", ".join(config.get_section_keys("libraries"))]
	var names := [config.get_value("libraries", key)]
	names.append_array(config.get_value("dependencies", key, {}).keys())
	var files := PackedStringArray()
	for file: String in names:
		var path := here.path_join(file)
		files.append("%s is %s" % [_absolute(path), "there" if FileAccess.file_exists(path) else "not there"])
	return "the extension of libnanovllm is not loaded: %s. Put the files of one release there and restart Godot, which says above why one that is there does not load" % ", ".join(files)


static func _absolute(path: String) -> String:
	return ProjectSettings.globalize_path(path)
