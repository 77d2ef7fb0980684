package rivals;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * The log inside a Kafka broker with its defaults, except that a batch may be larger than
 * 1 MiB, without the broker: what is appended is a batch of records as a producer encodes
 * it, which the log validates. A scan reads 1 MiB at a time, as a consumer does, and checks
 * the CRC-32C of each batch.
 */
final class KafkaLog implements Main.Log {
    private static final int FETCH_BYTES = 1 << 20;
    /** A batch is not larger; the first of a fetch is read even if it is larger than that. */
    private static final int BUFFER_BYTES = 8 << 20;
    private static final int PRODUCER_ID_EXPIRATION_MS = 86_400_000;

    private final KafkaScheduler scheduler = new KafkaScheduler(1);
    private final UnifiedLog log;

    KafkaLog(String dir) throws Exception {
        File partition = new File(dir, "log-0");
        if (!partition.isDirectory() && !partition.mkdirs()) {
            throw new IllegalStateException("cannot make " + partition);
        }
        scheduler.startup();
        log = UnifiedLog.create(partition, new LogConfig(Map.of("max.message.bytes", BUFFER_BYTES)), 0, 0, scheduler, new BrokerTopicStats(),
                Time.SYSTEM, 300_000, new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, false), 600_000,
                new LogDirFailureChannel(1), true, Optional.empty());
    }

    @Override
    public void append(Records records, int count, int batch, boolean sync) throws Exception {
        for (int i = 0; i < count; i += batch) {
            SimpleRecord[] simple = new SimpleRecord[batch];
            long now = System.currentTimeMillis();
            for (int j = 0; j < batch; j++) {
                int at = (i + j) % Records.COUNT;
                simple[j] = new SimpleRecord(now, records.keys[at], records.values[at]);
            }
            log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE, simple), 0);
            if (sync) {
                log.flush(false);
            }
        }
    }

    @Override
    public long scan(int count) throws Exception {
        long sum = 0;
        long offset = 0;
        ByteBuffer buffer = ByteBuffer.allocate(BUFFER_BYTES);
        byte[] value = new byte[FETCH_BYTES];
        while (offset < count) {
            FileRecords file = (FileRecords) log.read(offset, FETCH_BYTES, FetchIsolation.LOG_END, true).records;
            buffer.clear().limit(Math.min(BUFFER_BYTES, file.sizeInBytes()));
            file.readInto(buffer, 0);
            long before = offset;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    if (record.offset() >= offset) {
                        sum += record.keySize();
                        ByteBuffer bytes = record.value();
                        int size = bytes.remaining();
                        bytes.get(value, 0, size);
                        sum += size;
                        offset = record.offset() + 1;
                    }
                }
            }
            if (offset == before) {
                throw new IllegalStateException("the end at " + offset);
            }
        }
        return sum;
    }

    @Override
    public void close() throws Exception {
        log.close();
        scheduler.shutdown();
    }
}
