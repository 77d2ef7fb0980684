package rivals;

import java.io.File;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.DocumentContext;

/**
 * Chronicle Queue with its defaults: a mapped file, into which a record is copied. A
 * batch is so many of them. It writes no checksum and checks none. sync() is its way to
 * have the file written.
 */
final class ChronicleLog implements Main.Log {
    private final SingleChronicleQueue queue;
    private final ExcerptAppender appender;

    ChronicleLog(String dir) {
        queue = SingleChronicleQueueBuilder.single(new File(dir)).build();
        appender = queue.createAppender();
    }

    @Override
    public void append(Records records, int count, int batch, boolean sync) {
        for (int i = 0; i < count; i++) {
            int at = i % Records.COUNT;
            try (DocumentContext document = appender.writingDocument()) {
                Bytes<?> bytes = document.wire().bytes();
                bytes.writeLong(System.currentTimeMillis());
                bytes.writeShort((short) records.keys[at].length);
                bytes.write(records.keys[at]);
                bytes.write(records.values[at]);
            }
            if (sync && (i + 1) % batch == 0) {
                appender.sync();
            }
        }
    }

    @Override
    public long scan(int count) {
        long sum = 0;
        byte[] record = new byte[1 << 20];
        try (ExcerptTailer tailer = queue.createTailer()) {
            for (int i = 0; i < count; i++) {
                try (DocumentContext document = tailer.readingDocument()) {
                    if (!document.isPresent()) {
                        throw new IllegalStateException("the end at " + i);
                    }
                    Bytes<?> bytes = document.wire().bytes();
                    bytes.readSkip(Long.BYTES + Short.BYTES);
                    sum += bytes.read(record, 0, (int) bytes.readRemaining());
                }
            }
        }
        return sum;
    }

    @Override
    public void close() {
        appender.close();
        queue.close();
    }
}
