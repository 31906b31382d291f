//! Completions over HTTP, for many clients at once: `cargo run --release --example server -- MODEL [ADDRESS]`.
//!
//!     curl -N http://127.0.0.1:8000/completions -d '{"prompt": "introduce yourself", "max_tokens": 32}'
//!
//! The answer is a stream of events, one for each piece of text. One thread steps the engine; each client has a thread that adds its request
//! and sends what comes. When a client goes away, its request is cancelled.

use nanovllm::{Budget, Engine, EngineHandle, Finish, Prompt, SamplingParams};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use tiny_http::{Header, Method, Request, Response, Server};

/// Bytes of a request's body that are read.
const BODY_BYTES: u64 = 1 << 20;

/// The clients that wait for outputs, by the tag of their request.
type Clients = Arc<Mutex<HashMap<u64, Sender<String>>>>;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("usage: server MODEL [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let engine = Engine::open(model.as_str())?;
    let handle = engine.handle().clone();
    let clients = Clients::default();
    let server = Server::http(&address)?;
    println!("listening at http://{}", server.server_addr());
    let serving = clients.clone();
    thread::spawn(move || {
        if let Err(error) = serve(engine, &serving) {
            eprintln!("the engine has failed: {error}");
            std::process::exit(1);
        }
    });
    for (tag, request) in (1..).zip(server.incoming_requests()) {
        let (handle, clients) = (handle.clone(), clients.clone());
        // A client that is gone ends its thread, and nothing else.
        thread::spawn(move || drop(answer(request, tag, &handle, &clients)));
    }
    Ok(())
}

/// Steps the engine for ever, and hands outputs to their clients.
fn serve(mut engine: Engine, clients: &Clients) -> nanovllm::Result<()> {
    loop {
        engine.handle().wait(None)?;
        engine.step(Budget::OnePass)?;
        while let Some(output) = engine.poll() {
            let mut clients = clients.lock().expect("no thread panics with it");
            let (id, tag) = (output.request_id, output.tag);
            let text = serde_json::json!({ "text": output.text });
            let finish = output.finish.as_ref().map(|finish| match finish {
                Finish::Error(error) => serde_json::json!({ "error": error.to_string() }),
                other => serde_json::json!({ "finish": format!("{other:?}").to_lowercase() }),
            });
            let is_sent = clients.get(&tag).is_some_and(|client| {
                let events = [Some(text), finish.clone()];
                events.into_iter().flatten().all(|event| client.send(format!("data: {event}\n\n")).is_ok())
            });
            if finish.is_some() {
                clients.remove(&tag);
            } else if !is_sent {
                clients.remove(&tag);
                drop(clients);
                engine.handle().cancel(id)?;
            }
        }
    }
}

/// Reads a request, adds it to the engine, and sends its outputs until the last one.
fn answer(mut request: Request, tag: u64, handle: &EngineHandle, clients: &Clients) -> io::Result<()> {
    if (request.method(), request.url()) != (&Method::Post, "/completions") {
        return request.respond(Response::from_string("POST /completions is all there is\n").with_status_code(404));
    }
    let mut body = String::new();
    request.as_reader().take(BODY_BYTES).read_to_string(&mut body)?;
    let events = match add(&body, tag, handle, clients) {
        Ok(receiver) => Events { receiver, rest: Vec::new() },
        Err(error) => {
            clients.lock().expect("no thread panics with it").remove(&tag);
            return request.respond(Response::from_string(format!("{error}\n")).with_status_code(400));
        }
    };
    let kind = Header::from_bytes("Content-Type", "text/event-stream").expect("it is ASCII");
    request.respond(Response::new(200.into(), vec![kind], events, None, None).with_chunked_threshold(0))
}

fn add(body: &str, tag: u64, handle: &EngineHandle, clients: &Clients) -> Result<Receiver<String>, Box<dyn Error>> {
    let asked: serde_json::Value = serde_json::from_str(body)?;
    let prompt = asked["prompt"].as_str().ok_or("prompt must be a string")?;
    let mut params = SamplingParams { tag, ..handle.default_params() };
    if let Some(max_tokens) = asked.get("max_tokens") {
        params.max_tokens = Some(max_tokens.as_u64().ok_or("max_tokens must be a number")?.try_into()?);
    }
    if let Some(temperature) = asked.get("temperature") {
        params.temperature = temperature.as_f64().ok_or("temperature must be a number")? as f32;
    }
    let (sender, receiver) = channel();
    // Before its first output can come.
    clients.lock().expect("no thread panics with it").insert(tag, sender);
    handle.add(Prompt::Text(prompt), params)?;
    Ok(receiver)
}

/// The outputs of a request, as the bytes of its answer.
struct Events {
    receiver: Receiver<String>,
    rest: Vec<u8>,
}

impl Read for Events {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            // The last output closes the channel.
            let Ok(event) = self.receiver.recv() else { return Ok(0) };
            self.rest = event.into_bytes();
        }
        let count = self.rest.len().min(to.len());
        to[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}
