// HDFS and YARN in one JVM, with the configuration on its class path: java -cp conf:jars/* Hadoop.java FOLDER HOSTS
//
// Prints the configuration of a client, one "name=value" a line, then READY. Ends on SIGTERM, its containers first.

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

class Hadoop {
    static final String[] OF_CLIENTS = {
        "fs.defaultFS",
        "dfs.replication",
        "yarn.resourcemanager.address",
        "yarn.resourcemanager.scheduler.address",
        "yarn.resourcemanager.webapp.address",
    };

    public static void main(String[] arguments) {
        try {
            start(Path.of(arguments[0]), Integer.parseInt(arguments[1]));
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);  // threads of what has started would keep the JVM
        }
    }

    static void start(Path folder, int hosts) throws Exception {
        System.setProperty("test.build.data", folder.resolve("data").toString());
        var conf = new YarnConfiguration();
        var hdfs = new MiniDFSCluster.Builder(conf, folder.resolve("hdfs").toFile()).numDataNodes(1).build();
        hdfs.waitActive();
        var files = hdfs.getFileSystem();
        files.mkdirs(files.getHomeDirectory());
        conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + hdfs.getNameNodePort());

        var yarn = new MiniYARNCluster("yarn", hosts, 1, 1);
        yarn.init(conf);
        yarn.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(yarn, hosts)));
        if (!yarn.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("NodeManagers have not registered within a minute");
        }
        for (String name : OF_CLIENTS) {
            System.out.println(name + "=" + yarn.getConfig().get(name));
        }
        System.out.println("READY");
    }

    // A NodeManager kills its containers at once, then waits 17 s for what these tests do not need.
    static void stop(MiniYARNCluster yarn, int hosts) {
        List<Thread> stopping = new ArrayList<>();
        IntStream.range(0, hosts).forEach(host -> stopping.add(new Thread(yarn.getNodeManager(host)::stop)));
        stopping.forEach(Thread::start);
        try {
            long until = System.currentTimeMillis() + 1500;
            for (Thread thread : stopping) {
                thread.join(Math.max(1, until - System.currentTimeMillis()));
            }
        } catch (InterruptedException ignored) {
            // The JVM ends in any case.
        }
        Runtime.getRuntime().halt(0);
    }
}
