//! The command `embed`: texts become vectors.

use crate::engine::{Engine, Error, Request};
use crate::failure::Failure;
use crate::generate::{Refusal, Usage, beginning};
use crate::model::Model;
use crate::prompts;
use crate::terminal::{self, Answers, Bar};
use nanovllm_cli::{Embed, When};
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a> {
    text: &'a str,
    embedding: &'a [f32],
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal<'a>>,
}

/// What a text became.
#[derive(Default)]
struct Embedded {
    vector: Vec<f32>,
    prompt_tokens: u32,
    error: Option<Error>,
}

pub fn run(wanted: &Embed, model: &Model) -> Result<(), Failure> {
    let texts = prompts::collect(&wanted.text, &wanted.file, &wanted.lines)?;
    let mut engine = model.open(When::Auto)?;
    let mut embedded = embed_all(&mut engine, &texts, Request::pooled(wanted.pooling))?;
    let mut to = Answers::new();
    let mut has_failed = false;
    for (index, (text, found)) in texts.iter().zip(&mut embedded).enumerate() {
        if !wanted.no_normalize {
            normalize(&mut found.vector);
        }
        if let Some(error) = &found.error {
            has_failed = true;
            if !wanted.json {
                to.flush()?;
                terminal::error(&format!("text {} (\"{}\"): {}", index + 1, beginning(text), error.message));
                continue;
            }
        }
        if wanted.json {
            let usage = Usage { prompt_tokens: found.prompt_tokens, completion_tokens: None };
            let error = found.error.as_ref();
            let error = error.map(|error| Refusal { status: error.status_name(), message: &error.message });
            let line = Line { text, embedding: &found.vector, usage, error };
            to.write_line(&serde_json::to_string(&line).expect("a line is JSON"))?;
        } else {
            let numbers: Vec<String> = found.vector.iter().map(f32::to_string).collect();
            to.write_line(&numbers.join(" "))?;
        }
    }
    to.flush()?;
    if has_failed { Err(Failure::Reported) } else { Ok(()) }
}

fn embed_all(engine: &mut Engine, texts: &[String], mut request: Request) -> Result<Vec<Embedded>, Failure> {
    let mut embedded: Vec<Embedded> = texts.iter().map(|_| Embedded::default()).collect();
    let mut bar = Bar::new("embedding", When::Auto, !Answers::is_terminal());
    let (mut next, mut ended) = (0, 0);
    while next < texts.len() || !engine.is_finished() {
        while next < texts.len() {
            request.set_tag(next as u64);
            match engine.add(&texts[next], &request) {
                Err(error) if error.is_queue_full() => break,
                Err(error) if error.is_context_length() => embedded[next].error = Some(error),
                added => drop(added?),
            }
            next += 1;
        }
        engine.step()?;
        while let Some(output) = engine.poll()? {
            ended += 1;
            let found = &mut embedded[usize::try_from(output.tag).expect("it was an index")];
            *found = Embedded { vector: output.embedding, prompt_tokens: output.prompt_tokens, error: output.error };
        }
        bar.show(f64::from(ended) / texts.len() as f64, || format!("{ended} of {}", texts.len()));
    }
    Ok(embedded)
}

/// Scales a vector to the length 1, so that the products of two are cosines. That of zeros stays.
fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normalized_vector_has_length_1_unless_it_is_zero() {
        let mut vector = [3.0, 4.0];
        normalize(&mut vector);
        assert_eq!(vector, [0.6, 0.8]);
        let mut zero = [0.0, 0.0];
        normalize(&mut zero);
        assert_eq!(zero, [0.0, 0.0]);
    }
}
