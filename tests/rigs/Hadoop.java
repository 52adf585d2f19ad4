// HDFS and YARN in one JVM, with the configuration on its class path: java -cp conf:jars/* Hadoop.java FOLDER HOSTS HA
//
// Prints the configuration of a client, one "name=value" a line, then READY. Ends on SIGTERM, its containers first.
// With HA "true", HDFS is the service "cluster" of two NameNodes, of which the first one is active. Then it also prints
// the "orders" page, which takes one order a request: "stop/N", "start/N" and "activate/N" of the NameNode N.

import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

class Hadoop {
    static final String[] OF_CLIENTS = {
        "fs.defaultFS",
        "dfs.replication",
        "dfs.nameservices",
        "dfs.ha.namenodes.cluster",
        "dfs.namenode.rpc-address.cluster.nn1",
        "dfs.namenode.rpc-address.cluster.nn2",
        "dfs.client.failover.proxy.provider.cluster",
        "yarn.resourcemanager.address",
        "yarn.resourcemanager.scheduler.address",
        "yarn.resourcemanager.webapp.address",
    };

    public static void main(String[] arguments) {
        try {
            var service = Boolean.parseBoolean(arguments[2]);
            start(Path.of(arguments[0]), Integer.parseInt(arguments[1]), service);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);  // threads of what has started would keep the JVM
        }
    }

    static void start(Path folder, int hosts, boolean service) throws Exception {
        System.setProperty("test.build.data", folder.resolve("data").toString());
        var conf = new YarnConfiguration();
        var builder = new MiniDFSCluster.Builder(conf, folder.resolve("hdfs").toFile()).numDataNodes(1);
        if (service) {
            var names = new MiniDFSNNTopology.NSConf("cluster");
            names.addNN(new MiniDFSNNTopology.NNConf("nn1")).addNN(new MiniDFSNNTopology.NNConf("nn2"));
            builder.nnTopology(new MiniDFSNNTopology().addNameservice(names));
        }
        var hdfs = builder.build();
        if (service) {
            hdfs.waitActive(0);
            hdfs.waitActive(1);
            hdfs.transitionToActive(0);
            describe(hdfs, conf);
            // The NodeManagers fetch files with the settings of the class path.
            var described = new Configuration(false);
            describe(hdfs, described);
            try (var file = Files.newOutputStream(folder.resolve("server/service-site.xml"))) {
                described.writeXml(file);
            }
            Configuration.addDefaultResource("service-site.xml");
            takeOrders(hdfs);
        } else {
            hdfs.waitActive();
            conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + hdfs.getNameNodePort());
        }
        var files = hdfs.getFileSystem(0);
        files.mkdirs(files.getHomeDirectory());
        var user = System.getProperty("rig.user");
        if (user != null) {
            files.setPermission(new org.apache.hadoop.fs.Path("/"), FsPermission.createImmutable((short) 0777));
            files.mkdirs(new org.apache.hadoop.fs.Path("/user", user));
            files.setOwner(new org.apache.hadoop.fs.Path("/user", user), user, user);
        }

        var yarn = new MiniYARNCluster("yarn", hosts, 1, 1);
        yarn.init(conf);
        yarn.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(yarn, hosts)));
        if (!yarn.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("NodeManagers have not registered within a minute");
        }
        for (String name : OF_CLIENTS) {
            var value = yarn.getConfig().get(name);
            if (value != null) {
                System.out.println(name + "=" + value);
            }
        }
        System.out.println("READY");
    }

    static void describe(MiniDFSCluster hdfs, Configuration conf) {
        conf.set("fs.defaultFS", "hdfs://cluster");
        conf.set("dfs.nameservices", "cluster");
        conf.set("dfs.ha.namenodes.cluster", "nn1,nn2");
        for (int number : new int[] {0, 1}) {
            var name = "dfs.namenode.rpc-address.cluster.nn" + (number + 1);
            conf.set(name, "127.0.0.1:" + hdfs.getNameNodePort(number));
        }
        var provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider";
        conf.set("dfs.client.failover.proxy.provider.cluster", provider);
    }

    static void takeOrders(MiniDFSCluster hdfs) throws Exception {
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", request -> {
            var order = request.getRequestURI().getPath().split("/");
            var number = Integer.parseInt(order[2]);
            int status = 200;
            try {
                switch (order[1]) {
                    case "stop" -> hdfs.shutdownNameNode(number);
                    case "start" -> hdfs.restartNameNode(number, false);
                    default -> hdfs.transitionToActive(number);
                }
            } catch (Exception problem) {
                problem.printStackTrace();
                status = 500;
            }
            request.sendResponseHeaders(status, -1);
            request.close();
        });
        server.start();
        System.out.println("orders=" + server.getAddress().getPort());
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
