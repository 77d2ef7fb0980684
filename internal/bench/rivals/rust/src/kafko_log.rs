//! kafko: one topic of one partition, with its defaults. A send returns when the
//! record is in the page cache; its partition can be told to sync. It checks the
//! CRC-32 of each record that it reads.

use crate::{Log, Records, Result};
use bytes::Bytes;
use kafko::{Kafko, Producer};
use tokio::runtime::Runtime;

const TOPIC: &str = "log";

pub struct KafkoLog {
    runtime: Runtime,
    broker: Kafko,
    producer: Producer,
    keys: Vec<Bytes>,
    values: Vec<Bytes>,
}

impl KafkoLog {
    pub fn open(dir: &str) -> Result<Self> {
        let runtime = Runtime::new()?;
        let (broker, producer) = runtime.block_on(async {
            let broker = Kafko::open(dir).await?;
            if !broker.has_topic(TOPIC).await {
                broker.create_topic(TOPIC).await?;
            }
            let producer = broker.producer_for(TOPIC).await?;
            kafko::Result::Ok((broker, producer))
        })?;
        Ok(KafkoLog { runtime, broker, producer, keys: Vec::new(), values: Vec::new() })
    }

    /// Takes over the records as what kafko does not have to copy.
    fn prepare(&mut self, records: &Records) {
        if self.values.first().map(Bytes::len) != records.values.first().map(Vec::len) {
            self.keys = records.keys.iter().cloned().map(Bytes::from).collect();
            self.values = records.values.iter().cloned().map(Bytes::from).collect();
        }
    }
}

impl Log for KafkoLog {
    fn append(&mut self, records: &Records, count: usize, batch: usize, sync: bool) -> Result<()> {
        self.prepare(records);
        let (keys, values, producer) = (&self.keys, &self.values, &self.producer);
        let record = |i: usize| {
            let i = i % Records::COUNT;
            (Some(keys[i].clone()), values[i].clone())
        };
        self.runtime.block_on(async {
            let topic = self.broker.topic(TOPIC).await.ok_or("no topic")?;
            let partition = topic.partition(0).ok_or("no partition")?;
            for at in (0..count).step_by(batch) {
                if batch == 1 {
                    let (key, value) = record(at);
                    producer.send(key, value).await?;
                } else {
                    producer.send_batch((at..at + batch).map(record).collect()).await?;
                }
                if sync {
                    partition.sync().await?;
                }
            }
            Ok(())
        })
    }

    fn scan(&mut self, count: usize) -> Result<usize> {
        self.runtime.block_on(async {
            let mut consumer = self.broker.consumer_for(TOPIC).await?;
            let mut bytes = 0;
            for _ in 0..count {
                let record = consumer.next_record().await?;
                bytes += record.value().len() + record.key().map_or(0, Bytes::len);
            }
            Ok(bytes)
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.producer);
        Ok(self.runtime.block_on(self.broker.shutdown())?)
    }
}
