//! The clock and the power of the GPU while a figure is measured, as `nvidia-smi` reports them twice a second.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// Asks until it is dropped.
pub struct Watch {
    child: Option<Child>,
    samples: Arc<Mutex<Vec<[f32; 2]>>>,
}

impl Watch {
    /// Begins to ask about GPU 0. Without `nvidia-smi` there is nothing to report.
    pub fn begin() -> Watch {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let mut child = Command::new("nvidia-smi")
            .args(["-i", "0", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "500"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok();
        if let Some(lines) = child.as_mut().and_then(|child| child.stdout.take()) {
            let samples = samples.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(lines).lines().map_while(Result::ok) {
                    let numbers: Vec<f32> = line.split(',').filter_map(|number| number.trim().parse().ok()).collect();
                    if let Ok(sample) = numbers.try_into() {
                        samples.lock().unwrap().push(sample);
                    }
                }
            });
        }
        Watch { child, samples }
    }

    /// ", 1980 MHz, 512 W": medians since the last call, and nothing if the GPU was not asked meanwhile.
    pub fn since_last(&self) -> String {
        let samples = std::mem::take(&mut *self.samples.lock().unwrap());
        let mut text = String::new();
        for (index, unit) in ["MHz", "W"].into_iter().enumerate() {
            let mut numbers: Vec<f32> = samples.iter().map(|sample| sample[index]).collect();
            numbers.sort_by(f32::total_cmp);
            if let Some(median) = numbers.get(numbers.len() / 2) {
                write!(text, ", {median:.0} {unit}").unwrap();
            }
        }
        text
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
