//! How fast answers are read: MB of text per second, in pieces of four bytes, as tokens have, and of 4 KiB.

use serde_json::json;
use text::answer::{AnswerParser, Format};

fn main() {
    let tools = json!([{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]);
    let prose = "The weather in Zürich is <b>fine</b>, and it stays so for three days. ".repeat(2000);
    let code = "if a < b:\n    print(\"x\", [1, 2])\n".repeat(2000);
    let json = json!({"name": "clock", "arguments": {"text": prose, "code": code}}).to_string();
    let qwen =
        format!("<tool_call>\n<function=clock>\n<parameter=code>\n{code}\n</parameter>\n</function>\n</tool_call>");
    let answers = [
        ("hermes", "prose", prose.clone()),
        ("hermes", "reasoning", format!("<think>{prose}")),
        ("hermes", "arguments", format!("<tool_call>{json}</tool_call>")),
        ("qwen3-coder", "code", code.clone()),
        ("qwen3-coder", "arguments", qwen),
        ("gpt-oss", "prose", format!("<|channel|>final<|message|>{prose}")),
        ("mistral", "code", code.clone()),
    ];
    for (name, what, text) in answers {
        let format = Format::built_in(name).expect(name);
        for piece in [4, 4096] {
            let begun = std::time::Instant::now();
            let mut bytes = 0;
            while begun.elapsed().as_millis() < 300 {
                let mut parser = AnswerParser::new(&format, &tools, "");
                let mut rest = text.as_str();
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(rest.ceil_char_boundary(piece.min(rest.len())));
                    parser.feed(piece);
                    rest = after;
                }
                bytes += text.len() + parser.finish().1.malformed.len();
            }
            let speed = bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
            println!("{name}, {what}, pieces of {piece} bytes: {speed:.0} MB/s");
        }
    }
    let format = Format::built_in("hermes").expect("a format");
    let (begun, count) = (std::time::Instant::now(), 2000);
    for _ in 0..count {
        std::hint::black_box(AnswerParser::new(&format, &tools, "<|im_start|>assistant\n"));
    }
    println!("a parser is made in {:.1} us", begun.elapsed().as_secs_f64() * 1e6 / f64::from(count));
}
