//! streambed-logged: one topic, with its defaults. Its keys are numbers, so that the
//! key of 16 bytes is part of the value. It takes one record at a time, has no way to
//! sync, and writes its buffer when it is full or nothing has come for a while. It
//! checks the CRC-32 of each record that it reads.

use crate::{Log, Records, Result};
use std::time::Duration;
use streambed::commit_log::{CommitLog, ProducerRecord, Subscription, Topic};
use streambed_logged::FileLog;
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;

pub struct StreambedLog {
    runtime: Runtime,
    log: FileLog,
    topic: Topic,
}

impl StreambedLog {
    pub fn open(dir: &str) -> Result<Self> {
        Ok(StreambedLog { runtime: Runtime::new()?, log: FileLog::new(dir), topic: Topic::from("log") })
    }
}

impl Log for StreambedLog {
    fn append(&mut self, records: &Records, count: usize, batch: usize, sync: bool) -> Result<()> {
        if batch != 1 || sync {
            return Err("it has no batches and no syncs".into());
        }
        self.runtime.block_on(async {
            for i in 0..count {
                let i = i % Records::COUNT;
                let record = ProducerRecord {
                    topic: self.topic.clone(),
                    headers: vec![],
                    timestamp: None,
                    key: i as u64,
                    value: [records.keys[i].as_slice(), records.values[i].as_slice()].concat(),
                    partition: 0,
                };
                self.log.produce(record).await.map_err(|_| "it cannot produce")?;
            }
            Ok(())
        })
    }

    fn scan(&mut self, count: usize) -> Result<usize> {
        self.runtime.block_on(async {
            let subscriptions = vec![Subscription { topic: self.topic.clone() }];
            let mut stream = self.log.scoped_subscribe("scan", vec![], subscriptions, None);
            let mut bytes = 0;
            for _ in 0..count {
                bytes += stream.next().await.ok_or("the end")?.value.len();
            }
            Ok(bytes)
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // It writes what is in its buffer by itself, after 10 ms.
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    }
}
