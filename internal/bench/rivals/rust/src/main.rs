//! Logs in Rust, driven by the benchmarks in Go beside this: one command a line on
//! standard input, answered with "ok" and a number when it is done. See ../programs_test.go.
//!
//!     open DIR
//!     append COUNT BATCH VALUE_BYTES SYNC   SYNC is 1 if each batch has to be durable
//!     scan COUNT                            the first COUNT records; answers their bytes
//!     close

mod kafko_log;
mod streambed_log;

use std::error::Error;
use std::io::{self, BufRead, Write};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A log that is open.
pub trait Log {
    /// Appends the records, batch by batch.
    fn append(&mut self, records: &Records, count: usize, batch: usize, sync: bool) -> Result<()>;
    /// Reads all of that many records, and returns the sum of the bytes in them.
    fn scan(&mut self, count: usize) -> Result<usize>;
    fn close(self: Box<Self>) -> Result<()>;
}

/// Records that are appended in turn.
pub struct Records {
    pub keys: Vec<Vec<u8>>,
    pub values: Vec<Vec<u8>>,
}

impl Records {
    pub const COUNT: usize = 1000;

    /// Keys of 16 bytes, and values that do not compress.
    fn new(value_bytes: usize) -> Self {
        let mut state = 1u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        Records {
            keys: (0..Self::COUNT).map(|_| format!("key-{:012}", next() % 1000).into_bytes()).collect(),
            values: (0..Self::COUNT)
                .map(|_| (0..value_bytes).map(|_| next() as u8).collect())
                .collect(),
        }
    }
}

fn main() -> Result<()> {
    let system = std::env::args().nth(1).ok_or("which system?")?;
    let mut log: Option<Box<dyn Log>> = None;
    let mut records = Records::new(0);
    let mut value_bytes = 0;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| -> Result<usize> { Ok(words.get(i).ok_or("a number is missing")?.parse()?) };
        let mut answer = 0;
        match words[0] {
            "open" => {
                let dir = words.get(1).ok_or("which directory?")?;
                log = Some(match system.as_str() {
                    "kafko" => Box::new(kafko_log::KafkoLog::open(dir)?),
                    "streambed" => Box::new(streambed_log::StreambedLog::open(dir)?),
                    other => return Err(format!("unknown system {other}").into()),
                });
            }
            "append" => {
                if number(3)? != value_bytes {
                    value_bytes = number(3)?;
                    records = Records::new(value_bytes);
                }
                let log = log.as_mut().ok_or("not open")?;
                log.append(&records, number(1)?, number(2)?, number(4)? == 1)?;
            }
            "scan" => answer = log.as_mut().ok_or("not open")?.scan(number(1)?)?,
            "close" => log.take().ok_or("not open")?.close()?,
            other => return Err(format!("unknown command {other}").into()),
        }
        println!("ok {answer}");
        io::stdout().flush()?;
    }
    Ok(())
}
