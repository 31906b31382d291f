extends Node
## Asks the model two questions at once, shows the answers while they grow, and ends with 0 if the model of libnanovllm's demo said what it
## always says.

const QUESTIONS := ["introduce yourself", "list all prime numbers within 20"]
const EXPECTED := "Prime numbers within 20: 2, 3, 5, 7, 11, 13, 17, 19."

## The text of each request, by its id.
var answers := {}
## The ids of requests that run.
var running := {}
var last_id := 0


func _ready() -> void:
	for question in QUESTIONS:
		# 0 if the request is refused; _on_failed has told why.
		last_id = $Engine.generate_chat([{"role": "user", "content": question}], {"temperature": 0, "max_tokens": 200})
		if last_id == 0:
			return
		answers[last_id] = ""
		running[last_id] = true


func _on_text_generated(id: int, text: String) -> void:
	answers[id] += text
	$Answers.text = "\n".join(answers.values())


func _on_finished(id: int, reason: String) -> void:
	print("%d, %s: %s" % [id, reason, answers[id]])
	running.erase(id)
	# A window stays open.
	if running.is_empty() and DisplayServer.get_name() == "headless":
		get_tree().quit(0 if answers[last_id] == EXPECTED else 1)


func _on_failed(id: int, message: String) -> void:
	printerr("%d: %s" % [id, message])
	get_tree().quit(1)
