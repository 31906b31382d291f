extends Control
## A character who talks: what is typed goes to NanovllmChat, and the answer grows in the bubble while the game goes on.
##
## Without a window it asks a question of its own, and ends with 0 if the model of libnanovllm's demo said what it always says.

const EXPECTED := "Iron sword 40, shield 25, helmet 18, dagger 12, horseshoe 3. Coins, no favours."

@onready var chat: Node = $Chat
@onready var bubble: Label = $Bubble/Text
@onready var line: LineEdit = $Line


func _ready() -> void:
	line.grab_focus()
	if DisplayServer.get_name() == "headless":
		line.text_submitted.emit("what do you sell?")


func _on_line_text_submitted(text: String) -> void:
	if text.strip_edges() == "":
		return
	# Who speaks into an answer is heard at once: it is kept as far as it came.
	if chat.is_answering():
		chat.cancel()
		await chat.answered
	line.clear()
	bubble.text = "…"
	chat.send(text)


func _on_chat_text_generated(_text: String) -> void:
	bubble.text = chat.answer


func _on_chat_answered(answer: String, _reason: String) -> void:
	print("Brenna: ", answer)
	if DisplayServer.get_name() == "headless":
		get_tree().quit(0 if answer == EXPECTED and bubble.text == EXPECTED and chat.messages.size() == 2 else 1)


func _on_chat_failed(message: String) -> void:
	bubble.text = message
	printerr(message)
	if DisplayServer.get_name() == "headless":
		get_tree().quit(1)
