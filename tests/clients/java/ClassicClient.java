// A partner's program on the classes that WsImport (JAX-WS) generates from the WSDL for classic clients.
//
//     java -cp CLASS_PATH ClassicClient ADDRESS API_KEY USER_ID ACCOUNT_ID

import java.math.BigDecimal;
import java.net.URI;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Supplier;

import javax.xml.namespace.QName;
import javax.xml.ws.BindingProvider;

import com.sun.xml.ws.api.message.Headers;
import com.sun.xml.ws.developer.WSBindingProvider;

import partner.compat.IUserAccountService;
import partner.compat.IUserAccountServiceProblemFaultMessage;
import partner.compat.TransactionResponse;
import partner.compat.TransactionStatus;
import partner.compat.UserAccountService;

public final class ClassicClient {
    private static final QName MESSAGE_ID = new QName("http://www.w3.org/2005/08/addressing", "MessageID");

    private static void equal(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError(found + " instead of " + expected);
        }
    }

    private static void isStatus(TransactionResponse response, TransactionStatus expected) {
        equal(response.getStatusForTransaction(), expected);
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], key = arguments[1], user = arguments[2], account = arguments[3];
        IUserAccountService service = new UserAccountService(URI.create(address + "/soap/compat?wsdl").toURL())
                .getBasicHttpBindingIUserAccountService();
        Map<String, Object> context = ((BindingProvider) service).getRequestContext();
        context.put(BindingProvider.USERNAME_PROPERTY, "partner");
        context.put(BindingProvider.PASSWORD_PROPERTY, key);
        // The form of ids that JAX-WS wrote before WS-Addressing 1.0.
        Supplier<String> newId = () -> "uuid:" + UUID.randomUUID();
        Consumer<String> useId = id ->
                ((WSBindingProvider) service).setOutboundHeaders(Headers.create(MESSAGE_ID, id));

        String deposit = newId.get();
        useId.accept(deposit);
        TransactionResponse first = service.reliableInsertMoney(user, account, 12.5);
        isStatus(first, TransactionStatus.SUCCEDED);
        TransactionResponse again = service.reliableInsertMoney(user, account, 12.50);
        isStatus(again, TransactionStatus.COMPLETED);
        equal(again.getMessage(), first.getMessage());
        try {
            service.reliableInsertMoney(user, account, 12.51);
            throw new AssertionError("another content has the same id");
        } catch (IUserAccountServiceProblemFaultMessage fault) {
            equal(fault.getFaultInfo().getCode(), "idempotency_key_reused");
        }

        // A number that Java writes with an exponent.
        useId.accept(newId.get());
        isStatus(service.reliableInsertMoney(user, account, 1.0e7), TransactionStatus.SUCCEDED);
        String withdrawal = newId.get();
        useId.accept(withdrawal);
        for (int attempt = 0; attempt < 2; attempt++) {
            TransactionResponse rejected = service.reliableWithDrawMoney(user, account, 2.0e7);
            isStatus(rejected, TransactionStatus.FAILED);
            equal(rejected.getMessage(), "insufficient_funds");
        }
        useId.accept(newId.get());
        isStatus(service.reliableWithDrawMoney(user, account, 10000002.25), TransactionStatus.SUCCEDED);
        try {
            service.reliableInsertMoney(user, account, 0.1 + 0.2);
            throw new AssertionError("a number that is no amount was accepted");
        } catch (IUserAccountServiceProblemFaultMessage fault) {
            equal(fault.getFaultInfo().getViolations().getI().get(0).getField(), "amount");
        }
        equal(service.getUserAccountBalance(user, account), new BigDecimal("10.25"));
        System.out.println("all steps succeeded");
    }
}
